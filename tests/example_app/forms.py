"""What a person does with the host's forms."""

from __future__ import annotations

import re

from flask.testing import FlaskClient
from werkzeug.test import TestResponse


def token_on(page: TestResponse) -> str:
    """Return the CSRF token of the first form on a page."""
    found = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
    assert found, page.text
    return found[1]


def sign_in(client: FlaskClient, name: str, password: str, *, wanted: str = "") -> TestResponse:
    """Fill the sign-in form and send it."""
    address = f"/sign-in?next={wanted}" if wanted else "/sign-in"
    token = token_on(client.get(address))
    return client.post(address, data={"name": name, "password": password, "csrf_token": token})
