"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Frozen copies of the models' column types: a migration must not change when the models do.
_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

# Counters change with every settle, and the queue's head is where rows die.
_STORAGE = {
    "spiderpool_task": "fillfactor = 50",
    "spiderpool_slot": "fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01",
    "spiderpool_lane": "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01",
    "spiderpool_request": "autovacuum_vacuum_scale_factor = 0.02",
}


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "spiderpool_bus_message",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("topic", sa.String(length=10), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_bus_message")),
    )
    op.create_index(
        "ix_spiderpool_bus_message_topic_id", "spiderpool_bus_message", ["topic", "id"], unique=False
    )
    op.create_table(
        "spiderpool_counter",
        sa.Column("minute", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("minute", "name", name=op.f("pk_spiderpool_counter")),
    )
    op.create_table(
        "spiderpool_document",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("spider", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(length=16), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("page_id", sa.BigInteger(), nullable=True),
        sa.Column("content_hash", sa.LargeBinary(length=16), nullable=True),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_changed", sa.DateTime(timezone=True), nullable=False),
        sa.Column("times_seen", sa.Integer(), nullable=False),
        sa.Column("times_changed", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_document")),
        sa.UniqueConstraint("spider", "fingerprint", name=op.f("uq_spiderpool_document_spider_fingerprint")),
    )
    op.create_index("ix_spiderpool_document_last_seen", "spiderpool_document", ["last_seen"], unique=False)
    op.create_table(
        "spiderpool_keeper",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=True),
        sa.Column("until", sa.Double(), nullable=True),
        sa.Column("passed_at", sa.Double(), nullable=True),
        sa.Column("clock_offset_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_keeper")),
    )
    op.create_table(
        "spiderpool_setting",
        sa.Column("version", _BIG_ID, nullable=False),
        sa.Column("scope", sa.String(length=200), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by", sa.String(length=200), nullable=True),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_spiderpool_setting")),
    )
    op.create_index(
        "ix_spiderpool_setting_scope_version", "spiderpool_setting", ["scope", "version"], unique=False
    )
    op.create_table(
        "spiderpool_spider",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("definition", _JSON, nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("served", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_spiderpool_spider")),
    )
    op.create_table(
        "spiderpool_task",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("spider", sa.String(length=200), nullable=False),
        sa.Column("options", _JSON, nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("desired", sa.String(length=5), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("queue", sa.String(length=100), nullable=False),
        sa.Column("max_parallel", sa.Integer(), nullable=False),
        sa.Column("max_pages", sa.BigInteger(), nullable=True),
        sa.Column("max_time_s", sa.Double(), nullable=True),
        sa.Column("deadline_at", sa.Double(), nullable=True),
        sa.Column("discovered", sa.BigInteger(), nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("skipped", sa.BigInteger(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.Column("unchanged", sa.BigInteger(), nullable=False),
        sa.Column("items", sa.BigInteger(), nullable=False),
        sa.Column("retries", sa.BigInteger(), nullable=False),
        sa.Column("wire_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seeds", sa.BigInteger(), nullable=False),
        sa.Column("seeds_failed", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("created_by", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_reason", sa.String(length=40), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_task")),
    )
    op.create_index(
        "ix_spiderpool_task_spider_created_at", "spiderpool_task", ["spider", "created_at"], unique=False
    )
    op.create_index(
        "ix_spiderpool_task_status_created_at", "spiderpool_task", ["status", "created_at"], unique=False
    )
    op.create_table(
        "spiderpool_token",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("hint", sa.String(length=12), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_token")),
        sa.UniqueConstraint("hash", name=op.f("uq_spiderpool_token_hash")),
    )
    op.create_table(
        "spiderpool_worker",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("slices", sa.Integer(), nullable=False),
        sa.Column("info", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_spiderpool_worker")),
    )
    op.create_table(
        "spiderpool_history",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("from_status", sa.String(length=10), nullable=True),
        sa.Column("to_status", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.String(length=40), nullable=True),
        sa.Column("by", sa.String(length=200), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["spiderpool_task.id"],
            name=op.f("fk_spiderpool_history_task_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_history")),
    )
    op.create_index("ix_spiderpool_history_task_id_id", "spiderpool_history", ["task_id", "id"], unique=False)
    op.create_table(
        "spiderpool_item",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.BigInteger(), nullable=False),
        sa.Column("document_id", sa.BigInteger(), nullable=True),
        sa.Column("data", _JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"], ["spiderpool_task.id"], name=op.f("fk_spiderpool_item_task_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_item")),
    )
    op.create_index("ix_spiderpool_item_document_id", "spiderpool_item", ["document_id"], unique=False)
    op.create_index("ix_spiderpool_item_task_id_id", "spiderpool_item", ["task_id", "id"], unique=False)
    op.create_table(
        "spiderpool_lane",
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ready_at", sa.Double(), nullable=False),
        sa.Column("queued", sa.BigInteger(), nullable=False),
        sa.Column("has_work", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"], ["spiderpool_task.id"], name=op.f("fk_spiderpool_lane_task_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_id", "host_id", name=op.f("pk_spiderpool_lane")),
    )
    op.create_index(
        "ix_spiderpool_lane_ready",
        "spiderpool_lane",
        ["task_id", "ready_at"],
        unique=False,
        postgresql_where=sa.text("has_work"),
        sqlite_where=sa.text("has_work"),
    )
    op.create_table(
        "spiderpool_log",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("level", sa.SmallInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"], ["spiderpool_task.id"], name=op.f("fk_spiderpool_log_task_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_log")),
    )
    op.create_index("ix_spiderpool_log_task_id_id", "spiderpool_log", ["task_id", "id"], unique=False)
    op.create_table(
        "spiderpool_page",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("document_id", _BIG_ID, nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.BigInteger(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("status_code", sa.SmallInteger(), nullable=False),
        sa.Column("content_type", sa.String(length=200), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("markdown", sa.Text(), nullable=True),
        sa.Column("meta", _JSON, nullable=False),
        sa.Column("content_hash", sa.LargeBinary(length=16), nullable=False),
        sa.Column("body_bytes", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=True),
        sa.Column("last_modified", sa.Text(), nullable=True),
        sa.Column("fetched_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["spiderpool_document.id"],
            name=op.f("fk_spiderpool_page_document_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["spiderpool_task.id"], name=op.f("fk_spiderpool_page_task_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_page")),
    )
    op.create_index(
        "ix_spiderpool_page_document_id_id", "spiderpool_page", ["document_id", "id"], unique=False
    )
    op.create_index("ix_spiderpool_page_task_id_id", "spiderpool_page", ["task_id", "id"], unique=False)
    op.create_index(
        "ix_spiderpool_page_task_id_document_id", "spiderpool_page", ["task_id", "document_id"], unique=False
    )
    op.create_table(
        "spiderpool_request",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("host_id", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(length=16), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.SmallInteger(), nullable=False),
        sa.Column("deaths", sa.SmallInteger(), nullable=False),
        sa.Column("ready_at", sa.Double(), nullable=True),
        sa.Column("is_seed", sa.Boolean(), nullable=False),
        sa.Column("payload", _JSON, nullable=True),
        sa.Column("found_on", sa.BigInteger(), nullable=True),
        sa.Column("document_id", sa.BigInteger(), nullable=True),
        sa.Column("status_code", sa.SmallInteger(), nullable=True),
        sa.Column("reason", sa.String(length=40), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("wire_bytes", sa.BigInteger(), nullable=True),
        sa.Column("elapsed_ms", sa.Integer(), nullable=True),
        sa.Column("settled_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["spiderpool_task.id"],
            name=op.f("fk_spiderpool_request_task_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spiderpool_request")),
        sa.UniqueConstraint("task_id", "fingerprint", name=op.f("uq_spiderpool_request_task_id_fingerprint")),
    )
    op.create_index(
        "ix_spiderpool_request_leased",
        "spiderpool_request",
        ["task_id", "slot", "epoch"],
        unique=False,
        postgresql_where=sa.text("state = 1"),
        sqlite_where=sa.text("state = 1"),
    )
    op.create_index(
        "ix_spiderpool_request_queued",
        "spiderpool_request",
        ["task_id", "host_id", "priority", "id"],
        unique=False,
        postgresql_where=sa.text("state = 0"),
        sqlite_where=sa.text("state = 0"),
    )
    op.create_index(
        "ix_spiderpool_request_suspect",
        "spiderpool_request",
        ["task_id", "deaths", "id"],
        unique=False,
        postgresql_where=sa.text("state = 0 AND deaths > 0"),
        sqlite_where=sa.text("state = 0 AND deaths > 0"),
    )
    op.create_index(
        "ix_spiderpool_request_task_waiting",
        "spiderpool_request",
        ["task_id", "ready_at"],
        unique=False,
        postgresql_where=sa.text("state = 2"),
        sqlite_where=sa.text("state = 2"),
    )
    op.create_index(
        "ix_spiderpool_request_waiting",
        "spiderpool_request",
        ["ready_at"],
        unique=False,
        postgresql_where=sa.text("state = 2"),
        sqlite_where=sa.text("state = 2"),
    )
    op.create_table(
        "spiderpool_slot",
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=7), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.Column("until", sa.Double(), nullable=True),
        sa.Column("sends", sa.Integer(), nullable=False),
        sa.Column("leased", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("spared", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"], ["spiderpool_task.id"], name=op.f("fk_spiderpool_slot_task_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_id", "n", name=op.f("pk_spiderpool_slot")),
    )
    op.create_index(
        "ix_spiderpool_slot_due_at",
        "spiderpool_slot",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("state = 'due'"),
        sqlite_where=sa.text("state = 'due'"),
    )
    op.create_index(
        "ix_spiderpool_slot_until",
        "spiderpool_slot",
        ["until"],
        unique=False,
        postgresql_where=sa.text("state IN ('sent', 'running')"),
        sqlite_where=sa.text("state IN ('sent', 'running')"),
    )
    # In SQL, since SQLAlchemy 2.0 has no word for it.
    if op.get_bind().dialect.name == "postgresql":
        for table, parameters in _STORAGE.items():
            op.execute(f"ALTER TABLE {table} SET ({parameters})")


def downgrade() -> None:
    """Drop every table."""
    op.drop_index(
        "ix_spiderpool_slot_until",
        table_name="spiderpool_slot",
        postgresql_where=sa.text("state IN ('sent', 'running')"),
        sqlite_where=sa.text("state IN ('sent', 'running')"),
    )
    op.drop_index(
        "ix_spiderpool_slot_due_at",
        table_name="spiderpool_slot",
        postgresql_where=sa.text("state = 'due'"),
        sqlite_where=sa.text("state = 'due'"),
    )
    op.drop_table("spiderpool_slot")
    op.drop_index(
        "ix_spiderpool_request_waiting",
        table_name="spiderpool_request",
        postgresql_where=sa.text("state = 2"),
        sqlite_where=sa.text("state = 2"),
    )
    op.drop_index(
        "ix_spiderpool_request_task_waiting",
        table_name="spiderpool_request",
        postgresql_where=sa.text("state = 2"),
        sqlite_where=sa.text("state = 2"),
    )
    op.drop_index(
        "ix_spiderpool_request_suspect",
        table_name="spiderpool_request",
        postgresql_where=sa.text("state = 0 AND deaths > 0"),
        sqlite_where=sa.text("state = 0 AND deaths > 0"),
    )
    op.drop_index(
        "ix_spiderpool_request_queued",
        table_name="spiderpool_request",
        postgresql_where=sa.text("state = 0"),
        sqlite_where=sa.text("state = 0"),
    )
    op.drop_index(
        "ix_spiderpool_request_leased",
        table_name="spiderpool_request",
        postgresql_where=sa.text("state = 1"),
        sqlite_where=sa.text("state = 1"),
    )
    op.drop_table("spiderpool_request")
    op.drop_index("ix_spiderpool_page_task_id_document_id", table_name="spiderpool_page")
    op.drop_index("ix_spiderpool_page_task_id_id", table_name="spiderpool_page")
    op.drop_index("ix_spiderpool_page_document_id_id", table_name="spiderpool_page")
    op.drop_table("spiderpool_page")
    op.drop_index("ix_spiderpool_log_task_id_id", table_name="spiderpool_log")
    op.drop_table("spiderpool_log")
    op.drop_index(
        "ix_spiderpool_lane_ready",
        table_name="spiderpool_lane",
        postgresql_where=sa.text("has_work"),
        sqlite_where=sa.text("has_work"),
    )
    op.drop_table("spiderpool_lane")
    op.drop_index("ix_spiderpool_item_task_id_id", table_name="spiderpool_item")
    op.drop_index("ix_spiderpool_item_document_id", table_name="spiderpool_item")
    op.drop_table("spiderpool_item")
    op.drop_index("ix_spiderpool_history_task_id_id", table_name="spiderpool_history")
    op.drop_table("spiderpool_history")
    op.drop_table("spiderpool_worker")
    op.drop_table("spiderpool_token")
    op.drop_index("ix_spiderpool_task_status_created_at", table_name="spiderpool_task")
    op.drop_index("ix_spiderpool_task_spider_created_at", table_name="spiderpool_task")
    op.drop_table("spiderpool_task")
    op.drop_table("spiderpool_spider")
    op.drop_index("ix_spiderpool_setting_scope_version", table_name="spiderpool_setting")
    op.drop_table("spiderpool_setting")
    op.drop_table("spiderpool_keeper")
    op.drop_index("ix_spiderpool_document_last_seen", table_name="spiderpool_document")
    op.drop_table("spiderpool_document")
    op.drop_table("spiderpool_counter")
    op.drop_index("ix_spiderpool_bus_message_topic_id", table_name="spiderpool_bus_message")
    op.drop_table("spiderpool_bus_message")
