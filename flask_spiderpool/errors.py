"""Every exception that the pool raises.

::

    SpiderPoolError
    |- ConfigError              wrong SPIDERPOOL_* settings; all faults in one message
    |- SetupError               the extension is wired wrongly; says the remedy
    |- RequestError             a caller asked for something impossible (HTTP 4xx)
    |  |- InvalidParameter      one field is wrong: names field, value, what is allowed (422)
    |  |- UnknownSpider         (404)
    |  |- UnknownTask           (404)
    |  `- VerbConflict          the verb makes no sense in the task's status (409)
    |- Unavailable              a backing service cannot be reached just now (503)
    |- Fenced                   this slice no longer holds its slot; it must write and send nothing
    |- SpiderLoadError          a task's spider cannot be found or built
    `- FetchError               one request failed; carries a terms.Reason

A class's docstring is its default message. HTTP meaning is given in ``web/problems.py`` only.
"""

from __future__ import annotations


class SpiderPoolError(Exception):
    """Something in the spider pool went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class ConfigError(SpiderPoolError):
    """The SPIDERPOOL_* settings are wrong."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("wrong SPIDERPOOL_* settings:\n" + "\n".join(f"  - {fault}" for fault in faults))


class SetupError(SpiderPoolError):
    """The extension is wired wrongly."""


class RequestError(SpiderPoolError):
    """The call cannot be carried out as asked."""


class InvalidParameter(RequestError):
    """One parameter has a value that is not allowed."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}")
        self.detail = message


class UnknownSpider(RequestError):
    """No spider of that name is registered."""

    field = "spider_name"


class UnknownTask(RequestError):
    """No task has that id."""

    field = "task_id"


class VerbConflict(RequestError):
    """The task's status does not allow that."""

    def __init__(self, message: str, *, verb: str, status: str) -> None:
        self.verb = verb
        self.status = status
        super().__init__(message)


class Unavailable(SpiderPoolError):
    """A service that the pool stands on cannot be reached."""


class Fenced(SpiderPoolError):
    """This slice no longer holds its slot: another epoch has begun."""


class SpiderLoadError(SpiderPoolError):
    """The task's spider cannot be loaded."""


class FetchError(SpiderPoolError):
    """A request failed.

    ``retry`` says whether another attempt may help; ``retry_after_s`` is the site's own wish.
    """

    def __init__(
        self, reason: str, message: str = "", *, retry: bool = False, retry_after_s: float | None = None
    ) -> None:
        self.reason = str(reason)
        self.retry = retry
        self.retry_after_s = retry_after_s
        super().__init__(message or self.reason)
