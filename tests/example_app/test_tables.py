"""The host's own tables beside the pool's, on each database."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from example_app import create_app, db
from example_app.models import Bookmark, User
from example_app.tables import DEMO_USERS, prepare_tables
from flask_spiderpool.models import Document, metadata

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def test_tables_come_in_two_steps(db_url: str) -> None:
    """Users can sign in before the pool has tables; the table that refers to them follows once they stand."""
    app = create_app({"SQLALCHEMY_DATABASE_URI": db_url, "DEMO_USERS": True})
    with app.app_context():
        assert prepare_tables() is False
        assert set(db.session.scalars(sa.select(User.name))) == set(DEMO_USERS)
        assert sa.inspect(db.engine).get_table_names() == ["user"]
        metadata.create_all(db.engine)
        assert prepare_tables() is True
        keys = sa.inspect(db.engine).get_foreign_keys("bookmark")
        assert {key["referred_table"] for key in keys} == {"user", Document.__tablename__}
        _bookmark_a_document()
        db.session.remove()
        db.engine.dispose()


def _bookmark_a_document() -> None:
    document = Document(
        spider="news", fingerprint=bytes(16), url="http://x/", first_seen=NOW, last_seen=NOW, last_changed=NOW
    )
    db.session.add(document)
    db.session.flush()
    user = db.session.scalars(sa.select(User).limit(1)).one()
    user.bookmarks.append(Bookmark(document_id=document.id, note="kept"))
    db.session.commit()
    kept = db.session.scalars(sa.select(Bookmark)).one()
    assert kept.document.url == "http://x/"
    assert kept.created_at.tzinfo is not None


def test_a_document_that_is_not_there_cannot_be_kept(postgres_url: str) -> None:
    """Where the database checks foreign keys, a bookmark of nothing is refused."""
    app = create_app({"SQLALCHEMY_DATABASE_URI": postgres_url, "DEMO_USERS": True})
    with app.app_context():
        metadata.create_all(db.engine)
        prepare_tables()
        user_id = db.session.scalars(sa.select(User.id).limit(1)).one()
        db.session.add(Bookmark(user_id=user_id, document_id=2**40))
        with pytest.raises(sa.exc.IntegrityError):
            db.session.commit()
        db.session.remove()
        db.engine.dispose()


def test_preparing_twice_changes_nothing(db_url: str) -> None:
    """A second process, or a second call, finds everything made."""
    for _ in range(2):
        app = create_app({"SQLALCHEMY_DATABASE_URI": db_url, "DEMO_USERS": True})
        with app.app_context():
            prepare_tables()
            assert db.session.scalar(sa.select(sa.func.count()).select_from(User)) == len(DEMO_USERS)
            db.session.remove()
            db.engine.dispose()
