"""A host that keeps its tables by Flask-Migrate, run as a program: it prints what each step came to, as JSON.

``python migrating.py URL FOLDER [OTHER_URL]``: on the other database the same scripts are run too. A program of its own, since Alembic's env.py changes the logging of its process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import flask_migrate
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Mapped, mapped_column, relationship

from flask_spiderpool import SpiderPool, migrations
from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import Task as PoolTask
from flask_spiderpool.models import metadata

url, folder, *others = sys.argv[1:]

#: The host names its constraints in its own way, which must not reach our tables.
db = SQLAlchemy(
    metadata=sa.MetaData(naming_convention={"pk": "host_pk_%(table_name)s", "uq": "host_uq_%(table_name)s"})
)
pool = SpiderPool()


class Task(db.Model):  # type: ignore[name-defined, misc]
    """The host's own idea of a task, with a key and a relationship to ours."""

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(sa.String(50))
    crawl_id: Mapped[UUID | None] = mapped_column(sa.ForeignKey("spiderpool_task.id"))
    crawl: Mapped[PoolTask | None] = relationship(
        PoolTask,
        primaryjoin=lambda: sa.orm.foreign(Task.crawl_id) == PoolTask.id,
    )


def make_app(url: str) -> Flask:
    """The host's factory."""
    app = Flask("host", instance_path=f"{folder}/instance")
    app.config.update(SQLALCHEMY_DATABASE_URI=url, CELERY={"broker_url": "memory://"})
    pool.init_app(app)
    db.init_app(app)
    flask_migrate.Migrate(app, db, directory=f"{folder}/migrations")
    return app


def scripts() -> list[str]:
    """The revisions that stand in the host's folder."""
    return sorted(path.read_text() for path in Path(folder, "migrations", "versions").glob("*.py"))


def differences() -> list[str]:
    """What a further autogenerate would do."""
    with db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [str(difference) for difference in compare_metadata(context, db.metadata)]


def pool_tables() -> list[str]:
    """Which of our tables are there."""
    return sorted(set(sa.inspect(db.engine).get_table_names()) & set(metadata.tables))


def main() -> dict[str, Any]:
    """Go the way of a host, step by step."""
    told: dict[str, Any] = {}
    pool.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)
    app = make_app(url)
    with app.app_context():
        flask_migrate.init()
        flask_migrate.migrate(message="first")
        flask_migrate.upgrade()
        told["tables"] = len(pool_tables())
        told["differences"] = differences()
        told["ours"] = migrations.check(url)
        flask_migrate.migrate(message="second")
        told["scripts"] = len(scripts())
        told["drops"] = sum(script.split("def downgrade")[0].count("drop_table") for script in scripts())
        try:
            migrations.upgrade(url)
        except SetupError as error:
            told["refused"] = str(error)
        task = pool.start("quotes")
        db.session.add(Task(title="mine", crawl=task))
        db.session.commit()
        told["joined"] = db.session.query(Task).one().crawl.spider
        db.session.query(Task).delete()
        db.session.commit()
        db.session.remove()
        flask_migrate.downgrade(revision="base")
        told["after_down"] = pool_tables()
        flask_migrate.upgrade()
        told["after_up"] = differences()
        app.extensions["spiderpool"].close()
    for other in others:
        with make_app(other).app_context():
            flask_migrate.upgrade()
            told["elsewhere"] = differences() + migrations.check(other)
    return told


if __name__ == "__main__":
    result = main()
    sys.stdout.write("\n" + json.dumps(result) + "\n")
