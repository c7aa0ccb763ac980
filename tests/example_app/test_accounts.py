"""Signing in and out of the example host."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from example_app import create_app, db, role_of
from example_app.models import ROLES, User
from example_app.tables import DEMO_USERS, prepare_tables
from flask_spiderpool.terms import Role
from tests.example_app.forms import sign_in


@pytest.mark.parametrize(("name", "password"), DEMO_USERS.items())
def test_demo_users_sign_in(visitor: FlaskClient, name: str, password: str) -> None:
    """Each of the four demo users signs in with the password that the README prints."""
    assert sign_in(visitor, name, password).status_code == 302
    assert f"<span>{name}</span>" in visitor.get("/").text


def test_the_roles_are_the_pools_roles() -> None:
    """What the host calls a role is what the pool calls one."""
    assert tuple(Role) == ROLES == tuple(DEMO_USERS)


@pytest.mark.parametrize(("name", "password"), [("admin", "wrong"), ("nobody", "admin-lantern"), ("", "")])
def test_a_wrong_password_says_nothing_about_the_name(visitor: FlaskClient, name: str, password: str) -> None:
    """A wrong password and an unknown name get the same answer."""
    response = sign_in(visitor, name, password)
    assert response.status_code == 401
    assert "That name and password do not belong together." in response.text
    assert "Sign out" not in visitor.get("/").text


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "/%0a/evil.example",
    ],
)
def test_signing_in_never_leads_to_another_site(visitor: FlaskClient, wanted: str) -> None:
    """An address of another site in ``next`` leads home instead."""
    assert sign_in(visitor, "viewer", "viewer-lantern", wanted=wanted).headers["Location"] == "/"


def test_signing_in_goes_where_the_visitor_wanted(visitor: FlaskClient) -> None:
    """Whoever was sent to sign in comes back to the page asked for."""
    assert visitor.get("/bookmarks").headers["Location"] == "/sign-in?next=%2Fbookmarks"
    response = sign_in(visitor, "viewer", "viewer-lantern", wanted="%2Fbookmarks")
    assert response.headers["Location"] == "/bookmarks"


def test_a_form_without_its_token_is_refused(visitor: FlaskClient) -> None:
    """A POST that does not carry the session's token changes nothing."""
    visitor.get("/sign-in")
    data = {"name": "admin", "password": "admin-lantern", "csrf_token": "made up"}
    assert visitor.post("/sign-in", data=data).status_code == 400
    assert visitor.post("/sign-out").status_code == 400


def test_no_demo_users_in_a_database_that_somebody_chose() -> None:
    """With a database of its own and no debug mode the app makes no user with a public password."""
    app = create_app({"SQLALCHEMY_DATABASE_URI": "sqlite://"})
    with app.app_context():
        prepare_tables()
        assert db.session.scalar(sa.select(sa.func.count()).select_from(User)) == 0


def test_add_user_makes_and_changes_users(host: Flask) -> None:
    """The command adds a user, and gives an existing one a new role and password."""
    run = host.test_cli_runner().invoke
    assert run(args=["add-user", "reader", "viewer", "--password", "one"]).exit_code == 0
    assert run(args=["add-user", "reader", "editor", "--password", "two"]).exit_code == 0
    with host.app_context():
        user = db.session.scalars(sa.select(User).where(User.name == "reader")).one()
        assert (user.role, user.has_password("one"), user.has_password("two")) == ("editor", False, True)
    assert run(args=["add-user", "reader", "king", "--password", "x"]).exit_code == 2


def test_the_access_rule_gives_the_users_role_and_nobody_nothing() -> None:
    """Signed-in users have their own role in the pool; nobody else has any."""
    assert role_of(User(name="x", role="editor")) == "editor"
    assert role_of(None) is None
