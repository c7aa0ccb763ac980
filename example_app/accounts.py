"""Signing in and out."""

from __future__ import annotations

from urllib.parse import urlsplit

import click
import sqlalchemy as sa
from flask import Blueprint, flash, redirect, render_template, request, session, url_for
from flask_login import current_user, login_required, login_user, logout_user
from werkzeug.security import check_password_hash, generate_password_hash
from werkzeug.wrappers import Response as BaseResponse

from example_app.csrf import protect
from example_app.extensions import db, login_manager
from example_app.models import ROLES, User
from example_app.tables import prepare_tables

blueprint = Blueprint("accounts", __name__, cli_group=None)
protect(blueprint)

login_manager.login_view = "accounts.sign_in"
login_manager.login_message = "Sign in to go on."

#: Compared against when the name is not known, so that the answer takes as long as for a known one.
_NOBODY = generate_password_hash("nobody has this password")


@login_manager.user_loader  # type: ignore[untyped-decorator]  # flask_login has no types
def load_user(user_id: str) -> User | None:
    """Return the user of a session."""
    prepare_tables()
    return db.session.get(User, int(user_id)) if user_id.isdecimal() else None


@blueprint.route("/sign-in", methods=["GET", "POST"])
def sign_in() -> BaseResponse | str | tuple[str, int]:
    """Show the form, or sign in and go where the visitor wanted to go."""
    target = _safe_target(request.args.get("next", ""))
    if current_user.is_authenticated:
        return redirect(target)
    if request.method == "GET":
        return render_template("host/sign_in.html", name="")
    prepare_tables()
    name = request.form.get("name", "").strip()
    password = request.form.get("password", "")
    user = db.session.scalar(sa.select(User).where(User.name == name))
    if user is None:
        check_password_hash(_NOBODY, password)
    elif user.has_password(password):
        session.clear()  # a session that was planted before signing in ends here
        login_user(user)
        return redirect(target)
    flash("That name and password do not belong together.", "error")
    return render_template("host/sign_in.html", name=name), 401


@blueprint.post("/sign-out")
@login_required  # type: ignore[untyped-decorator]  # flask_login has no types
def sign_out() -> BaseResponse:
    """End the session."""
    logout_user()
    session.clear()
    return redirect(url_for("pages.home"))


def _safe_target(wanted: str) -> str:
    """Return ``wanted`` if it stays on this site, else the home page."""
    parts = urlsplit(wanted)
    stays = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and not parts.netloc
    return wanted if stays and not any(ord(c) < 32 for c in wanted) else url_for("pages.home")


@blueprint.cli.command("add-user")
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
@click.password_option()
def add_user(name: str, role: str, password: str) -> None:
    """Add a user NAME with ROLE, or give an existing one a new role and password."""
    prepare_tables()
    user = db.session.scalar(sa.select(User).where(User.name == name)) or User(name=name)
    user.role = role
    user.set_password(password)
    db.session.add(user)
    db.session.commit()
    click.echo(f"{name} may sign in as {role}.")
