"""Bearer tokens: 256 random bits, of which only the SHA-256 is kept. Functions on the session that is given."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.models import Token
from flask_spiderpool.terms import Role

PREFIX = "spt_"  #: so that a leaked token is recognised by secret scanners

AnySession = Session | Any


def add_token(
    session: AnySession,
    *,
    name: str,
    role: Role,
    owner: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """Add a token and return it with its secret, which is shown once and never again. Flushes, does not commit."""
    secret = PREFIX + secrets.token_urlsafe(32)
    token = Token(
        name=name,
        hash=_hash(secret),
        hint=secret[:12],
        role=Role(role).value,
        owner=owner,
        created_at=datetime.now(UTC),
        expires_at=expires_at,
    )
    session.add(token)
    session.flush()
    return token, secret


def find_token(session: AnySession, secret: str, *, now: datetime | None = None) -> Token | None:
    """Return the token of ``secret``; None if there is none, or it has expired or been revoked.

    The look-up is by the hash: its timing says nothing of the secrets that are kept.
    """
    if not secret.startswith(PREFIX) or len(secret) > 200:
        return None
    token: Token | None = session.execute(
        sa.select(Token).where(Token.hash == _hash(secret))
    ).scalar_one_or_none()
    if token is None or token.revoked_at is not None:
        return None
    if token.expires_at is not None and token.expires_at <= (now or datetime.now(UTC)):
        return None
    return token


def revoke(session: AnySession, token_id: int) -> bool:
    """Revoke a token for good; False: there is none with that id. Flushes, does not commit."""
    token = session.get(Token, token_id)
    if token is None:
        return False
    if token.revoked_at is None:
        token.revoked_at = datetime.now(UTC)
        session.flush()
    return True


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
