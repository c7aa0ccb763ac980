"""A token in the session and in every form of the host's own pages."""

from __future__ import annotations

import hmac
import secrets

from flask import Blueprint, abort, request, session

_KEY = "csrf_token"


def csrf_token() -> str:
    """Return the session's token, made at first use."""
    if _KEY not in session:
        session[_KEY] = secrets.token_urlsafe(24)
    return str(session[_KEY])


def check_csrf() -> None:
    """Refuse a form that was not sent from one of our own pages (400)."""
    if request.method == "POST":
        sent = request.form.get(_KEY, "").encode()
        if not hmac.compare_digest(sent, str(session.get(_KEY, secrets.token_hex())).encode()):
            abort(400, "The form is too old. Go back, reload the page and send it again.")


def protect(blueprint: Blueprint) -> None:
    """Check every POST to ``blueprint`` and give its templates ``csrf_token()``."""
    blueprint.before_request(check_csrf)
    blueprint.app_context_processor(lambda: {"csrf_token": csrf_token})
