"""The verbs: start, pause, resume, stop, retry.

REST, panel, command line, Python callers and the keeper all enter here.
"""

from flask_spiderpool.control.border import translate, translated
from flask_spiderpool.control.outermost import after_outermost_commit
from flask_spiderpool.control.parts import Parts
from flask_spiderpool.control.verbs import as_task_id, change, retry, start

__all__ = [
    "Parts",
    "after_outermost_commit",
    "as_task_id",
    "change",
    "retry",
    "start",
    "translate",
    "translated",
]
