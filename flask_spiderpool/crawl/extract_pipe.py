"""The parent's end of the pipe to the extraction child: start it, feed it, read it, kill it. No policy."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask_spiderpool.crawl import extract_child
from flask_spiderpool.crawl.extract_child import ANSWER, HELLO_ID, REQUEST

_PIPE_BYTES = 1024 * 1024  #: what an unprivileged process may have on Linux; holds some twenty pages
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """One frame of the child."""

    request_id: int
    payload: dict[str, Any]
    last: bool  #: the child ends after this one


class ChildProcess:
    """One running child. Neither reads nor writes block; it belongs to the thread that started it.

    That thread must outlive it: on Linux the child is killed when the thread ends that forked it.
    """

    def __init__(self, *, memory_limit_bytes: int, recycle_after: int, alarm_s: int) -> None:
        arguments = [str(os.getpid()), str(memory_limit_bytes), str(recycle_after), str(alarm_s)]
        # By path and isolated: `-m` would import the root package and with it Flask, and the script's own
        # folder on sys.path would offer our modules under the names of others.
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
            [sys.executable, "-I", str(Path(extract_child.__file__).resolve()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C at the terminal is the parent's to handle
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.stdin_fd = self._process.stdin.fileno()
        self.stdout_fd = self._process.stdout.fileno()
        for fd in (self.stdin_fd, self.stdout_fd):
            os.set_blocking(fd, False)
            _enlarge(fd)
        self._out = bytearray()
        self._in = bytearray()
        path = [entry for entry in sys.path if entry and Path(entry).is_absolute()]
        self.send(HELLO_ID, b"", json.dumps(path).encode())

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait for room in the pipe."""
        return bool(self._out)

    def send(self, request_id: int, url: bytes, html: bytes) -> None:
        """Queue one page and write as much as the pipe takes."""
        self._out += REQUEST.pack(request_id, len(url), len(html))
        self._out += url
        self._out += html
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes. A broken pipe is told by :meth:`receive`, not here."""
        while self._out:
            try:
                written = os.write(self.stdin_fd, self._out)
            except BlockingIOError:
                return
            except OSError:
                self._out.clear()
                return
            del self._out[:written]

    def receive(self) -> tuple[list[Answer], bool]:
        """Return the whole answers that have come, and whether the child is still there."""
        alive = True
        while True:
            try:
                data = os.read(self.stdout_fd, _READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                alive = False
                break
            self._in += data
        return list(self._frames()), alive

    def _frames(self) -> Any:
        while len(self._in) >= ANSWER.size:
            request_id, length, last = ANSWER.unpack_from(self._in)
            end = ANSWER.size + length
            if len(self._in) < end:
                return
            payload = json.loads(bytes(self._in[ANSWER.size : end]))
            del self._in[:end]
            yield Answer(request_id, payload, bool(last))

    def kill(self) -> None:
        """End the child at once and reap it: it holds nothing that could be lost."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Close this process's ends of the pipes and nothing else (after a fork: the child is another's)."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        # Keeps Popen from waiting for, or warning of, a process that is not this one's.
        self._process.returncode = self._process.returncode if self._process.returncode is not None else 0


def _enlarge(fd: int) -> None:
    """Give a pipe room for several pages, where the system lets us."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
