"""The default broker: messages are files in a folder, for web and worker processes of one machine.

Kombu's own filesystem transport lets a reader see a message, or a table of bindings, that is still being
written, and ends its worker on that and on a folder that has gone. Here a file appears whole or not at all,
whoever removes a message has it, and a folder that was deleted is made anew. A message that cannot be read
is dropped with a warning: the keeper sends a slot's message again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any, ClassVar
from uuid import uuid4

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import filesystem as _filesystem
from kombu.transport import virtual as _virtual

logger = logging.getLogger(__name__)

SCHEME = "spiderpool-folder"
_SUFFIX = ".msg"

# Kombu is partly typed, and not for subclasses.
filesystem: Any = _filesystem
virtual: Any = _virtual
_Binding = filesystem.exchange_queue_t


def register_transport() -> None:
    """Make :data:`SCHEME` known to Kombu, which takes no dotted path from a URL."""
    TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"


def make_folders(*folders: Path) -> None:
    """Make folders and the one around each, for their owner alone: whoever writes there can run tasks here."""
    for folder in folders:
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)


class Channel(filesystem.Channel):  # type: ignore[misc]
    """Kombu's channel with whole files. The names of the files tell the order and the queue."""

    # -- messages ----------------------------------------------------------------------------------------

    def _put(self, queue: str, payload: Any, **_: Any) -> None:
        name = f"{time.time_ns():020d}_{uuid4()}.{queue}{_SUFFIX}"
        self._write(Path(self.data_folder_out) / name, payload)

    def _get(self, queue: str) -> Any:
        for path in self._messages(queue):
            try:
                text = path.read_bytes()
                path.unlink()
            except FileNotFoundError:
                continue  # another process has it
            message = _message(text)
            if message is not None:
                return message
            logger.warning("a message in %s cannot be read and is dropped: %.60r", path.parent, text)
        raise Empty

    def _size(self, queue: str) -> int:
        return len(self._messages(queue))

    def _purge(self, queue: str) -> int:
        paths = self._messages(queue)
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def _messages(self, queue: str) -> list[Path]:
        """Return the files of a queue, oldest first."""
        folder = Path(self.data_folder_in)
        try:
            names = [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            self._make_anew()
            return []
        wanted = queue + _SUFFIX
        # A file that is being written begins with a dot, so its queue would be called otherwise.
        return [folder / name for name in sorted(names) if name.partition(".")[2] == wanted]

    # -- bindings ----------------------------------------------------------------------------------------

    def get_table(self, exchange: str) -> list[Any]:
        """Return who is bound to ``exchange``: as the folder says, and this process's own in any case."""
        found = self._read_table(exchange)
        own = self._own_bindings(exchange)
        if found is None and own:
            for binding in own:
                self._queue_bind(exchange, *binding)
        table = found or []
        return table + [binding for binding in own if binding not in table]

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        binding = _Binding(routing_key or "", pattern or "", queue or "")
        with self._tables_locked():
            table = self._read_table(exchange) or []
            if binding not in table:
                self._write(self._exchange_file(exchange), [binding, *table])

    def _delete(self, queue: str, exchange: str, routing_key: str, pattern: str, *_: Any, **__: Any) -> None:
        self._purge(queue)
        binding = _Binding(routing_key or "", pattern or "", queue or "")
        with self._tables_locked():
            table = self._read_table(exchange) or []
            if binding in table:
                table.remove(binding)
                self._write(self._exchange_file(exchange), table)

    def _read_table(self, exchange: str) -> list[Any] | None:
        """Return the table in the folder; None where there is none that can be read."""
        try:
            return [_Binding(*row) for row in json.loads(self._exchange_file(exchange).read_bytes())]
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _own_bindings(self, exchange: str) -> list[Any]:
        own = []
        for key, arguments in list(self.state.bindings.items()):
            if key.exchange == exchange:
                kind = self.typeof(exchange)
                row = kind.prepare_bind(key.queue, exchange, key.routing_key, arguments)
                own.append(_Binding(*(part or "" for part in row)))
        return own

    @contextmanager
    def _tables_locked(self) -> Iterator[None]:
        """Change tables one process, and one thread, at a time."""
        path = self.control_folder / ".lock"
        try:
            file = path.open("ab")
        except FileNotFoundError:
            self._make_folders()
            file = path.open("ab")
        with file:
            filesystem.lock(file, filesystem.LOCK_EX)
            try:
                yield
            finally:
                filesystem.unlock(file)

    # -- files and folders -------------------------------------------------------------------------------

    def _write(self, path: Path, content: Any) -> None:
        """Let ``path`` appear with all of its content at once."""
        text = filesystem.dumps(content).encode()
        unseen = path.with_name(f".{uuid4()}.tmp")
        try:
            _write_and_rename(unseen, path, text)
        except FileNotFoundError:
            self._make_folders()
            _write_and_rename(unseen, path, text)
        except OSError:
            unseen.unlink(missing_ok=True)
            raise

    def _make_folders(self) -> None:
        make_folders(Path(self.data_folder_in), Path(self.data_folder_out), self.control_folder)

    def _make_anew(self) -> None:
        """Somebody deleted the folders: make them, and bind what this process had bound there."""
        logger.warning("the folder of the default broker was gone and is made anew: %s", self.data_folder_in)
        self._make_folders()
        for exchange in {key.exchange for key in list(self.state.bindings)}:
            for binding in self._own_bindings(exchange):
                self._queue_bind(exchange, *binding)


class Transport(filesystem.Transport):  # type: ignore[misc]
    """Kombu's transport with :class:`Channel`."""

    Channel = Channel
    driver_type = driver_name = SCHEME
    #: A full disk or a folder without rights is, as with any broker, a reason to try again later.
    connection_errors = (*filesystem.Transport.connection_errors, OSError)

    #: What a process has bound, by folder: Kombu's one state would let a second app's queue pass as bound.
    _states: ClassVar[dict[str, Any]] = {}

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        folder = str(client.transport_options.get("control_folder", ""))
        self.state = self._states.setdefault(folder, virtual.BrokerState())


def _write_and_rename(unseen: Path, path: Path, text: bytes) -> None:
    unseen.write_bytes(text)
    unseen.replace(path)


def _message(text: bytes) -> dict[str, Any] | None:
    """Return a message, or None for what is none."""
    try:
        payload = filesystem.loads(text.decode())
    except (ValueError, TypeError, RecursionError):
        return None
    whole = isinstance(payload, dict) and "body" in payload and isinstance(payload.get("properties"), dict)
    return payload if whole else None
