"""Serve a folder of pages on loopback, pinned to one core: nginx if it is there, else asyncio processes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")

NGINX_CONF = """
worker_processes 1;
daemon off;
pid {state}/nginx.pid;
error_log {state}/error.log;
{user}
events {{ worker_connections 4096; }}
http {{
  types {{ text/html html; text/plain txt; }}
  default_type application/octet-stream;
  charset utf-8;
  access_log off;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_requests 1000000;
  client_body_temp_path {state}/body;
  proxy_temp_path {state}/proxy;
  fastcgi_temp_path {state}/fastcgi;
  uwsgi_temp_path {state}/uwsgi;
  scgi_temp_path {state}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    root {root};
    location = / {{ return 301 /index.html; }}
    location = /view/article {{ try_files /view/$arg_id.html =404; }}
  }}
}}
"""


@contextlib.contextmanager
def serving(root: Path, port: int, *, core: int | None, state: Path) -> Iterator[str]:
    """Serve ``root`` on ``127.0.0.1:port`` until the block ends; yield the name of the server used."""
    state.mkdir(parents=True, exist_ok=True)
    if NGINX:
        name, command = "nginx", _nginx_command(root, port, state)
    else:
        name, command = "asyncio", [sys.executable, __file__, str(root), str(port)]
    with (state / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        _wait_until_open(port, process)
        _pin_children(process.pid, core)
        yield name
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _nginx_command(root: Path, port: int, state: Path) -> list[str]:
    # As root, nginx drops to `nobody`, who could not read a cache folder below a private home.
    user = "user root;" if os.geteuid() == 0 else ""
    conf = state / "nginx.conf"
    conf.write_text(NGINX_CONF.format(root=root, port=port, state=state, user=user))
    return [str(NGINX), "-c", str(conf), "-p", str(state)]


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the web server ended with {process.returncode}; is port {port} taken?")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/robots.txt")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError(f"the web server did not answer on port {port}")


def _pin_children(pid: int, core: int | None) -> None:
    if core is None:
        return
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(child), {core})


# ---- the server for a machine without nginx -------------------------------------------------------------


class _Pages(asyncio.Protocol):
    """A keep-alive GET server over files read once."""

    def __init__(self, root: Path, cache: dict[str, bytes]) -> None:
        self._root, self._cache = root, cache
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while b"\r\n\r\n" in self._pending:
            head, self._pending = self._pending.split(b"\r\n\r\n", 1)
            target = head.split(b" ", 2)[1].decode("latin-1")
            self._transport.write(self._answer(target))  # type: ignore[attr-defined]

    def _answer(self, target: str) -> bytes:
        if target not in self._cache:
            parts = urlsplit(target)
            path = parts.path
            if path == "/view/article":
                path = f"/view/{parse_qs(parts.query).get('id', [''])[0]}.html"
            file = (self._root / path.lstrip("/")).resolve()
            if not file.is_relative_to(self._root) or not file.is_file():
                return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            kind = "text/html" if file.suffix == ".html" else "text/plain"
            body = file.read_bytes()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
            self._cache[target] = head.encode() + body
        return self._cache[target]


async def _serve(root: Path, port: int) -> None:
    cache: dict[str, bytes] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Pages(root, cache), "127.0.0.1", port, backlog=1024, reuse_port=True
    )
    await server.serve_forever()


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    for _ in range(arguments.processes - 1):
        if os.fork() == 0:
            break
    asyncio.run(_serve(arguments.root.resolve(), arguments.port))


if __name__ == "__main__":
    _main()
