"""The closed sets: statuses, request states, reasons, verbs, roles, event and message names.

Every word that is stored in a row, sent in a message or shown to a person stands here once.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

TASK_SLICE = "spiderpool.slice"  #: Celery name of the message that wakes a slot: ``(task_id, n, epoch)``


class Status(StrEnum):
    """What a task is. Only :mod:`flask_spiderpool.store` assigns it."""

    PENDING = "pending"  #: started, no slice has claimed it yet
    RUNNING = "running"  #: at least one slice has worked on it
    PAUSING = "pausing"  #: pause was asked; requests that had been started finish and settle
    PAUSED = "paused"  #: nothing is leased and nothing is sent until ``resume``
    STOPPING = "stopping"  #: stop was asked; requests that had been started finish and settle
    STOPPED = "stopped"  #: ended by a person; nothing is sent any more
    FINISHED = "finished"  #: every discovered request has an outcome, or a limit was reached
    FAILED = "failed"  #: the spider could not be loaded, or every seed failed


#: Statuses that nothing but ``retry`` leaves.
ENDED = frozenset({Status.STOPPED, Status.FINISHED, Status.FAILED})


class Desired(StrEnum):
    """What a person wants of a task; kept apart from what it is."""

    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


class Verb(StrEnum):
    """What a person may do to a task."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RETRY = "retry"


class Effect(StrEnum):
    """The result of a verb on a task: the table verb x status maps to one of these."""

    UNCHANGED = "unchanged"  #: 200: the task already is, or already goes, where the verb leads
    ACCEPTED = "accepted"  #: 202: written; the slices will follow
    CONFLICT = "conflict"  #: 409: the verb makes no sense in this status


#: verb x status. PROTOCOL: nothing but ``retry`` leaves an ended state; ``resume`` takes back a pause
#: that has not been reached yet, but a stop is never taken back.
VERB_TABLE: dict[Verb, dict[Status, Effect]] = {
    Verb.PAUSE: {
        Status.PENDING: Effect.ACCEPTED,
        Status.RUNNING: Effect.ACCEPTED,
        Status.PAUSING: Effect.UNCHANGED,
        Status.PAUSED: Effect.UNCHANGED,
        Status.STOPPING: Effect.CONFLICT,
        Status.STOPPED: Effect.CONFLICT,
        Status.FINISHED: Effect.CONFLICT,
        Status.FAILED: Effect.CONFLICT,
    },
    Verb.RESUME: {
        Status.PENDING: Effect.UNCHANGED,
        Status.RUNNING: Effect.UNCHANGED,
        Status.PAUSING: Effect.ACCEPTED,
        Status.PAUSED: Effect.ACCEPTED,
        Status.STOPPING: Effect.CONFLICT,
        Status.STOPPED: Effect.CONFLICT,
        Status.FINISHED: Effect.CONFLICT,
        Status.FAILED: Effect.CONFLICT,
    },
    Verb.STOP: {
        Status.PENDING: Effect.ACCEPTED,
        Status.RUNNING: Effect.ACCEPTED,
        Status.PAUSING: Effect.ACCEPTED,
        Status.PAUSED: Effect.ACCEPTED,
        Status.STOPPING: Effect.UNCHANGED,
        Status.STOPPED: Effect.UNCHANGED,
        Status.FINISHED: Effect.CONFLICT,
        Status.FAILED: Effect.CONFLICT,
    },
    Verb.RETRY: {
        Status.PENDING: Effect.CONFLICT,
        Status.RUNNING: Effect.CONFLICT,
        Status.PAUSING: Effect.CONFLICT,
        Status.PAUSED: Effect.CONFLICT,
        Status.STOPPING: Effect.CONFLICT,
        Status.STOPPED: Effect.ACCEPTED,
        Status.FINISHED: Effect.ACCEPTED,
        Status.FAILED: Effect.ACCEPTED,
    },
}


class RequestState(IntEnum):
    """Where a request stands. ``queued`` of a task counts QUEUED and WAITING together."""

    QUEUED = 0  #: ready to be leased
    LEASED = 1  #: held by one slice, fenced by ``(slot, epoch)``
    WAITING = 2  #: a retry that rests until ``ready_at``
    DONE = 3
    FAILED = 4
    SKIPPED = 5


class SlotState(StrEnum):
    """Where a slot stands (PROTOCOL: the slot is outbox, ticket, lease and fence in one row)."""

    IDLE = "idle"  #: nothing to do, or not wanted
    DUE = "due"  #: to be sent at ``due_at``
    SENT = "sent"  #: a message is under way until ``until``
    RUNNING = "running"  #: a slice holds it until ``until``


class Reason(StrEnum):
    """Why a request failed, was skipped or is tried again. Stored, counted and filterable."""

    # The network.
    DNS = "dns"
    REFUSED = "refused"
    DISCONNECTED = "disconnected"
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_TOTAL = "timeout_total"
    TLS = "tls"
    PROTOCOL = "protocol"  #: what came was not HTTP
    # The answer.
    TOO_LARGE = "too_large"  #: more bytes on the wire than ``max_bytes``
    BOMB = "bomb"  #: unpacks to more than ``max_unpacked_bytes``
    TRUNCATED = "truncated"
    ENCODING = "encoding"  #: the content coding could not be undone
    CONTENT_TYPE = "content_type"
    REDIRECT_LOOP = "redirect_loop"
    REDIRECT_LIMIT = "redirect_limit"
    REDIRECT_BAD = "redirect_bad"  #: no usable Location
    # The rules.
    ROBOTS = "robots"
    ROBOTS_UNREACHABLE = "robots_unreachable"
    HOST_RESTS = "host_rests"  #: a redirect led to a host that asked to be left alone for now
    SCOPE = "scope"
    DEPTH = "depth"
    SCHEME = "scheme"
    BAD_URL = "bad_url"
    URL_TOO_LONG = "url_too_long"
    BLOCKED_ADDRESS = "blocked_address"
    # The pool itself.
    SPIDER_ERROR = "spider_error"  #: ``parse`` raised
    SPIDER_TIMEOUT = "spider_timeout"  #: ``parse`` did not return
    STORE_ERROR = "store_error"  #: the page could not be stored, alone and repeated
    INTERNAL = "internal"  #: a fault of the pool's own; the log has the details
    DEATHS = "deaths"  #: its worker died with it three times
    CANCELLED = "cancelled"  #: still under way when the stop grace ended; queued again uncounted


class EndReason(StrEnum):
    """Why a task reached an ended status, as its history says."""

    COMPLETE = "complete"
    MAX_PAGES = "max_pages"
    MAX_TIME = "max_time"
    BY_PERSON = "by_person"
    ALL_SEEDS_FAILED = "all_seeds_failed"
    SPIDER_MISSING = "spider_missing"
    SPIDER_BROKEN = "spider_broken"
    RUNNER_FAILED = "runner_failed"


class Role(StrEnum):
    """What a caller may do; each role includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Tell whether this role may do what ``other`` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Event(StrEnum):
    """Names of what slices publish on the bus, one message at the end of each."""

    #: ``{task_id, discovered, done, failed, skipped, status, reason}``: it does not run any more
    TASK_STATUS = "task.status"
    TASK_PROGRESS = "task.progress"  #: ``{task_id, discovered, done, failed, skipped}``


class Command(StrEnum):
    """Names of what control publishes to running slices."""

    DESIRED = "desired"  #: ``{task_id, desired}``: look at the task again now
    SETTINGS = "settings"  #: ``{version}``: live settings changed


def http_reason(status: int) -> str:
    """Return the reason of an HTTP status, as ``http_404``."""
    return f"http_{status}"
