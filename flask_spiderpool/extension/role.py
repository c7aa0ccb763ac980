"""Which kind of process this is: a worker never imports the web layer."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROLE_VARIABLE = "SPIDERPOOL_ROLE"


def is_worker_process(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether this process was started as a worker.

    So it is if ``SPIDERPOOL_ROLE`` is ``worker``, or if the command line is one of these::

        celery ... worker ...              python -m celery ... worker ...
        flask ... spiderpool worker ...    python -m flask ... spiderpool worker ...
    """
    argv = sys.argv if argv is None else argv
    environ = os.environ if environ is None else environ
    role = environ.get(ROLE_VARIABLE)
    if role:
        return role == "worker"
    if not argv:
        return False
    words = list(argv[1:])
    program = Path(argv[0])
    # `python -m celery` leaves .../celery/__main__.py in argv[0].
    name = program.parent.name if program.name == "__main__.py" else program.stem
    if name == "celery":
        return "worker" in words
    if name == "flask" and "spiderpool" in words:
        return words[words.index("spiderpool") + 1 :][:1] == ["worker"]
    return False
