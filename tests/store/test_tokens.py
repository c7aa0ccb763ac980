"""Bearer tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.models import Token
from flask_spiderpool.store.tokens import add_token, find_token, revoke
from flask_spiderpool.terms import Role
from tests.store.frontiers import Frontier


def test_token_is_found_by_its_secret(frontier: Frontier) -> None:
    """The secret leads to the token; another does not, nor does part of it."""
    with Session(frontier.host) as session:
        token, secret = add_token(session, name="ci", role=Role.OPERATOR, owner="ann")
        other, other_secret = add_token(session, name="two", role=Role.VIEWER)
        session.commit()
        assert secret.startswith("spt_")
        assert len(secret) > 40
        assert find_token(session, secret) is token
        assert find_token(session, other_secret) is other
        for wrong in ("", "spt_", secret[:-1], secret + "x", secret[4:], "spt_" + "é" * 10, "spt_\ud800"):
            assert find_token(session, wrong) is None
        assert (token.role, token.owner, token.name) == ("operator", "ann", "ci")


def test_secret_is_not_kept(frontier: Frontier) -> None:
    """No column holds the secret, only its hash and its first characters."""
    with Session(frontier.host) as session:
        _, secret = add_token(session, name="ci", role=Role.ADMIN)
        session.commit()
        (row,) = session.execute(sa.select(Token.__table__)).all()
    assert all(secret not in str(value) for value in row)
    assert row.hint == secret[:12]


def test_expired_and_revoked_tokens_are_not_found(frontier: Frontier) -> None:
    """A token ends with its time or when it is revoked."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    with Session(frontier.host) as session:
        token, secret = add_token(session, name="ci", role=Role.VIEWER, expires_at=now)
        session.commit()
        assert find_token(session, secret, now=now - timedelta(seconds=1)) is token
        assert find_token(session, secret, now=now) is None
        token, secret = add_token(session, name="ci", role=Role.VIEWER)
        assert revoke(session, token.id)
        revoked_at = token.revoked_at
        assert revoke(session, token.id)
        assert token.revoked_at == revoked_at
        session.commit()
        assert find_token(session, secret) is None
        assert not revoke(session, 12345)
