"""The pool's own Alembic migrations, for databases whose tables no Flask-Migrate of the host looks after.

One owner a database: tables that the host's migrations have made are left to the host. The version stands in a
table of its own, ``spiderpool_alembic_version``.
"""

from flask_spiderpool.migrations.runner import Outcome, Ownership, check, current, downgrade, head, upgrade

__all__ = ["Outcome", "Ownership", "check", "current", "downgrade", "head", "upgrade"]
