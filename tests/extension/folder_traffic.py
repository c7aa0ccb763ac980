"""A process that puts messages into a folder's queues, or takes them out, as fast as it can.

``python -m tests.extension.folder_traffic put|take FOLDER NAME N``: puts N messages, or takes until nothing has
come for a while; prints what it took, one a line.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kombu import Connection, Queue

from flask_spiderpool.extension.folder_broker import SCHEME, register_transport

QUIET_S = 2.0  #: a taker ends when nothing has come for so long


def connect(folder: Path, scheme: str = SCHEME) -> Connection:
    """Return a connection to the broker in ``folder``."""
    register_transport()
    queue, control = folder / "queue", folder / "control"
    options = {"data_folder_in": str(queue), "data_folder_out": str(queue), "control_folder": str(control)}
    return Connection(f"{scheme}://localhost", transport_options={**options, "polling_interval": 0.001})


def main(act: str, folder: str, name: str, n: str) -> None:
    """Put or take."""
    with connect(Path(folder)) as connection:
        simple = connection.SimpleQueue(Queue("traffic", routing_key="traffic"))
        if act == "put":
            for i in range(int(n)):
                simple.put({"id": f"{name}-{i}", "ballast": "x" * 5000})
            return
        last = time.monotonic()
        while time.monotonic() - last < QUIET_S:
            try:
                message = simple.get(block=False)
            except simple.Empty:
                time.sleep(0.001)
                continue
            print(message.payload["id"])
            message.ack()
            last = time.monotonic()


if __name__ == "__main__":
    main(*sys.argv[1:])
