"""The pool's own Alembic migrations."""
