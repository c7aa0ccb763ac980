"""Who may do what. Closed by default: whoever is not known gets 401, whoever may not gets 403.

A caller is known in one of two ways:

- a bearer token (``Authorization: Bearer spt_...``), which carries a role;
- the host's access rule, which is asked with the host's own signed-in user (a cookie session). A call that
  changes something is then refused unless it comes from a page of the same origin, since a browser sends
  cookies with the forms of other sites too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flask import current_app, g, request
from werkzeug.exceptions import Forbidden, Unauthorized

from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import Token
from flask_spiderpool.state import PoolState
from flask_spiderpool.store.tokens import find_token
from flask_spiderpool.terms import Role
from flask_spiderpool.web.problems import problem
from flask_spiderpool.web.transaction import look

F = TypeVar("F", bound=Callable[..., Any])

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ROLE = "spiderpool_role"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: the name that history shows, the role, and to whom the tasks belong that it starts."""

    name: str
    role: Role
    owner: str


def requires(role: Role) -> Callable[[F], F]:
    """Mark a view as open to ``role`` and those above it. A view without a mark is open to nobody."""

    def mark(view: F) -> F:
        setattr(view, _ROLE, role)
        return view

    return mark


def caller() -> Caller:
    """Return who calls; for views, after :func:`check_access`."""
    found: Caller = g.spiderpool_caller
    return found


def check_access(state: PoolState) -> None:
    """Let the caller of the current request pass, or raise 401 or 403."""
    needed = getattr(current_app.view_functions[request.endpoint or ""], _ROLE, None)
    if not isinstance(needed, Role):
        raise Forbidden("this route is open to nobody")
    found = _identify(state)
    if not found.role.includes(needed):
        raise Forbidden(f"this needs the role {needed}; {found.name} has {found.role}")
    g.spiderpool_caller = found


def _identify(state: PoolState) -> Caller:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return _by_token(state, secret.strip())
    # Asked again for each request: debug mode may have been switched off since the app was made.
    if state.settings.auth == "none" and (current_app.debug or current_app.testing):
        return _themselves("anyone", Role.ADMIN)
    if state.access_rule is not None:
        return _by_rule(state.access_rule)
    raise _unauthorized("send a token: Authorization: Bearer spt_...")


def _themselves(name: str, role: Role) -> Caller:
    return Caller(name, role, owner=name)


def _by_token(state: PoolState, secret: str) -> Caller:
    found = look(state, lambda session: _caller_of(find_token(session, secret)))
    if found is None:
        raise _unauthorized("the token is unknown, expired or revoked", error="invalid_token")
    return found


def _caller_of(token: Token | None) -> Caller | None:
    if token is None:
        return None
    name = f"token:{token.name}"[:200]
    return Caller(name, Role(token.role), owner=token.owner or name)


def _by_rule(rule: Callable[[Any], Role | str | None]) -> Caller:
    user = _host_user()
    answer = rule(user)
    signed_in = bool(getattr(user, "is_authenticated", user is not None))
    if answer is None:
        if signed_in:
            raise Forbidden("the host's access rule gives you no role here")
        raise _unauthorized("sign in, or send a token: Authorization: Bearer spt_...")
    try:
        role = Role(answer)
    except ValueError:
        allowed = ", ".join(Role)
        raise SetupError(f"the access rule returned {answer!r}; allowed are {allowed} and None") from None
    if request.method not in SAFE_METHODS:
        _check_origin()
    return _themselves(f"user:{_user_id(user)}" if signed_in else "host", role)


def _host_user() -> Any:
    """Return the host's user; None if it has no Flask-Login. We never install a login manager."""
    if not hasattr(current_app, "login_manager"):
        return None
    from flask_login import current_user

    return current_user._get_current_object()


def _user_id(user: Any) -> str:
    get_id = getattr(user, "get_id", None)
    return str(get_id() if callable(get_id) else user)[:190]


def _check_origin() -> None:
    """Refuse a call that a page of another site may have made with the user's cookies.

    There are three cases: the browser says where the call comes from (Sec-Fetch-Site; Fetch Metadata), or only
    the page's origin (RFC 6454), or nothing: then a header is needed that forms cannot send.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        same = site == "same-origin"
    elif origin is not None:
        same = _server(origin) == request.host.lower()
    else:
        same = "X-Requested-With" in request.headers
    if not same:
        raise Forbidden(
            "a call that relies on a cookie must come from a page of this origin (or, outside a browser, carry"
            " an X-Requested-With header); other programs send a token"
        )


def _server(origin: str) -> str | None:
    """Return ``host:port`` of an origin as it stands there; None for what names none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _unauthorized(detail: str, *, error: str | None = None) -> Unauthorized:
    """Say how to be known (RFC 6750, section 3; the realm is a quoted string by RFC 9110, 11.6.1)."""
    challenge = 'Bearer realm="spiderpool"' + (f', error="{error}"' if error else "")
    return Unauthorized(response=problem(401, detail, headers={"WWW-Authenticate": challenge}))
