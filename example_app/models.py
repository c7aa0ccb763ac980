"""The host's own tables: its users, and the crawled articles that they keep."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from flask_login import UserMixin
from sqlalchemy.orm import Mapped, mapped_column, relationship
from werkzeug.security import check_password_hash, generate_password_hash

from example_app.extensions import HostBase
from flask_spiderpool.models import Document
from flask_spiderpool.models.base import UtcDateTime

ROLES = ("viewer", "operator", "editor", "admin")  #: what the pool's access rule understands


def _now() -> datetime:
    return datetime.now(UTC)


class User(UserMixin, HostBase):  # type: ignore[misc]  # flask_login has no types
    """Somebody who may sign in."""

    __tablename__ = "user"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(80))
    role: Mapped[str] = mapped_column(sa.String(10))
    password_hash: Mapped[str] = mapped_column(sa.String(255))
    bookmarks: Mapped[list[Bookmark]] = relationship(back_populates="user", cascade="all, delete-orphan")

    __table_args__ = (
        sa.UniqueConstraint("name", name="uq_user_name"),
        sa.CheckConstraint(sa.column("role").in_(ROLES), name="ck_user_role"),
    )

    def set_password(self, password: str) -> None:
        """Keep a salted hash of the password, never the password."""
        self.password_hash = generate_password_hash(password)

    def has_password(self, password: str) -> bool:
        """Tell whether this is the user's password; takes about 50 ms by design."""
        return check_password_hash(self.password_hash, password)


class Bookmark(HostBase):
    """A crawled document that a user wants to find again, with a note.

    The foreign key leads from the host's table into the pool's; both stand in one database, so a document
    and what the host says about it can be joined, and written in one transaction.
    """

    __tablename__ = "bookmark"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(sa.ForeignKey("user.id", ondelete="CASCADE"))
    document_id: Mapped[int] = mapped_column(
        sa.BigInteger, sa.ForeignKey(Document.__table__.c.id, ondelete="CASCADE")
    )
    note: Mapped[str] = mapped_column(sa.String(500), default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=_now)
    user: Mapped[User] = relationship(back_populates="bookmarks")
    document: Mapped[Document] = relationship(Document)

    __table_args__ = (sa.UniqueConstraint("user_id", "document_id", name="uq_bookmark_user_document"),)
