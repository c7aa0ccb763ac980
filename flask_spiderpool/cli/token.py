"""``flask spiderpool token``: bearer tokens for the REST API."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

import click
import sqlalchemy as sa
from flask.cli import with_appcontext
from sqlalchemy.orm import Session

from flask_spiderpool.cli.app import open_pool
from flask_spiderpool.cli.output import json_option, print_json, print_table
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.errors import InvalidParameter
from flask_spiderpool.models import Token
from flask_spiderpool.store import tokens
from flask_spiderpool.terms import Role

_LIST = "'flask spiderpool token list' shows them"


@click.group(short_help="Bearer tokens for the REST API.")
def token() -> None:
    """Make, list and revoke the tokens with which programs reach the REST API."""


@token.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.OPERATOR.value,
    show_default=True,
    help="viewer reads; operator starts, pauses and stops; editor and admin do more.",
)
@click.option("--days", type=click.IntRange(1, 3650), help="Valid for so many days. Default: until revoked.")
@click.option("--owner", help="Whose tasks this token's starts are.")
@json_option
@with_appcontext
def create(name: str, role: str, days: int | None, owner: str | None, as_json: bool) -> None:
    """Make a token called NAME. Its secret is shown once, now; only its hash is kept."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    if name.isdigit():
        raise InvalidParameter(
            "NAME", f"{name} is a number, which would stand for a token's id; add a letter"
        )
    with open_pool() as (_, session):
        if live := _live(session, name):
            raise InvalidParameter(
                "NAME",
                f"a live token is called {name} already (id {live[0].id}); take another name, or run"
                f" 'flask spiderpool token revoke {shlex.quote(name)}' before",
            )
        made, secret = tokens.add_token(
            session, name=name, role=Role(role), owner=owner, expires_at=expires_at
        )
        session.commit()
        if as_json:
            print_json({"id": made.id, "name": made.name, "role": made.role, "token": secret})
            return
        click.echo(secret)
        click.echo(
            f"token {made.id} ({made.name}, {made.role}) is shown this once; send it as 'Authorization: Bearer ...'",
            err=True,
        )


@token.command("list")
@json_option
@with_appcontext
def list_(as_json: bool) -> None:
    """List all tokens, without their secrets."""
    with open_pool() as (_, session):
        found = session.scalars(sa.select(Token).order_by(Token.id)).all()
        rows = [
            {
                "id": one.id,
                "name": one.name,
                "hint": one.hint,
                "role": one.role,
                "owner": one.owner,
                "created_at": one.created_at,
                "expires_at": one.expires_at,
                "revoked_at": one.revoked_at,
            }
            for one in found
        ]
    if as_json:
        print_json(rows)
        return
    columns = ("id", "name", "hint", "role", "owner", "created_at", "expires_at", "revoked_at")
    print_table(
        columns,
        [tuple(row[name] for name in columns) for row in rows],
        empty=pasteable("no tokens yet; make one with 'flask spiderpool token create NAME'"),
    )


@token.command()
@click.argument("which", metavar="NAME|ID")
@json_option
@with_appcontext
def revoke(which: str, as_json: bool) -> None:
    """Revoke a token by its name or id: it opens nothing any more."""
    with open_pool() as (_, session):
        found = _find(session, which)
        tokens.revoke(session, found.id)
        session.commit()
        if as_json:
            print_json({"id": found.id, "name": found.name, "revoked_at": found.revoked_at})
        else:
            click.echo(f"token {found.id} ({found.name}) is revoked")


def _find(session: Session, which: str) -> Token:
    if which.isdigit():
        found = session.get(Token, int(which)) if len(which) < 19 else None
        if found is None:
            raise InvalidParameter("NAME|ID", f"no token has the id {which:.40}; {_LIST}")
        return found
    live = _live(session, which)
    if not live:
        raise InvalidParameter("NAME|ID", f"no live token is called {which!r:.80}; {_LIST}")
    if len(live) > 1:
        ids = ", ".join(str(one.id) for one in live)
        raise InvalidParameter(
            "NAME|ID", f"several tokens are called {which!r:.80}; give one of the ids {ids}"
        )
    return live[0]


def _live(session: Session, name: str) -> list[Token]:
    """Return the tokens of a name that still open something."""
    usable = sa.or_(Token.expires_at.is_(None), Token.expires_at > datetime.now(UTC))
    query = sa.select(Token).where(Token.name == name, Token.revoked_at.is_(None), usable).order_by(Token.id)
    return list(session.scalars(query))
