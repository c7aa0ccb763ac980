"""The web server of ``up`` and ``demo``: the app itself, in threads of this process."""

from __future__ import annotations

import errno
import os
import socket
import threading

import click
from flask import Flask
from werkzeug.serving import make_server

from flask_spiderpool.errors import Unavailable

PORT = 5000  #: as flask run; on some systems another service has it

port_option = click.option(
    "--port",
    "-p",
    type=click.IntRange(0, 65535),
    help=f"Default: {PORT}, or a free one when that is taken. 0: a free one.",
)


class Address:
    """A socket that listens already, so that its port is known before the app is made. Port 0 takes a free one.

    Bound here rather than by werkzeug, which ends the process when it cannot.
    """

    def __init__(self, host: str, port: int) -> None:
        self.socket = _bind(host, port)
        self.host, self.port = host, int(self.socket.getsockname()[1])

    def __str__(self) -> str:
        """``host:port``, as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The root, for a browser on this machine."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
        shown = everywhere.get(self.host)
        return f"http://{shown}:{self.port}" if shown else f"http://{self}"


def address_for(host: str, port: int | None) -> Address:
    """Return where to serve; somebody who named no port gets one that is free."""
    if port is not None:
        return Address(host, port)
    try:
        return Address(host, PORT)
    except Unavailable:
        return Address(host, 0)


class WebServer:
    """Serves one app on one address until it is closed."""

    def __init__(self, app: Flask, address: Address) -> None:
        self.url = address.url
        self._address = address
        self._server = make_server(address.host, address.port, app, threaded=True, fd=address.socket.fileno())
        self._thread = threading.Thread(target=self._server.serve_forever, name="spiderpool-web", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """Take no further request. Idempotent."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5.0)
        self._server.server_close()
        self._address.socket.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        # The text that create_server makes repeats itself and the address: the system's own words suffice.
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        hint = "; choose another with --port" if error.errno == errno.EADDRINUSE else ""
        option = "--port" if error.errno == errno.EADDRINUSE else "--host and --port"
        raise Unavailable(f"{option}: {host}:{port} cannot be used ({cause.lower()}){hint}") from error
