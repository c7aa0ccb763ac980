"""start, pause, resume, stop, retry: each joins the session that it is given.

A verb writes rows through that session and nothing else; it never commits. What must reach the slices leaves
after the session's outermost commit, and only then, so a rollback means it never was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session, scoped_session

from flask_spiderpool.bus.base import CommandMessage
from flask_spiderpool.config import Settings
from flask_spiderpool.control.border import translated
from flask_spiderpool.control.outermost import after_outermost_commit
from flask_spiderpool.control.parts import Parts
from flask_spiderpool.control.real_begin import begin_for_real
from flask_spiderpool.control.seeds import begin
from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.spider import Spider
from flask_spiderpool.crawl.urls import host_key
from flask_spiderpool.errors import FetchError, InvalidParameter
from flask_spiderpool.models import Task
from flask_spiderpool.store import Message, verbs
from flask_spiderpool.terms import Command, Desired, Effect, Verb

AnySession = Session | scoped_session[Any]

_DESIRED = {
    Verb.PAUSE: Desired.PAUSE,
    Verb.RESUME: Desired.RUN,
    Verb.STOP: Desired.STOP,
    Verb.RETRY: Desired.RUN,
}
#: Limits of safety that the pool's settings hold for every spider that names none.
_POOL_LIMITS = ("delay_s", "concurrency_per_host", "request_timeout_s", "max_bytes", "max_unpacked_bytes")
#: A note is for people; a longer one is a mistake.
MAX_NOTE_LENGTH = 1000


def start(
    session: AnySession,
    parts: Parts,
    spider: str,
    *,
    start_urls: str | Sequence[str] | None = None,
    by: str | None = None,
    owner: str | None = None,
    note: str | None = None,
    **params: Any,
) -> Task:
    """Begin a task of ``spider``; ``params`` are options of the spider, for this task alone.

    Raises :class:`~flask_spiderpool.errors.UnknownSpider` and
    :class:`~flask_spiderpool.errors.InvalidParameter`, both before anything is written, and
    :class:`~flask_spiderpool.errors.Unavailable` for a database that is away or busy; then roll back.
    """
    plain = _plain(session)
    found = parts.registry.get(spider)
    named = [start_urls] if isinstance(start_urls, str) else start_urls
    if named is not None:
        params["start_urls"] = list(named)
    options, seeds = begin(found, named, merged_options(found, params, parts.settings))
    note = _note(note)
    with translated():
        begin_for_real(plain)
        task, messages = verbs.create_task(
            plain,
            spider=found.name,
            options=options.to_json(),
            seeds=seeds,
            queue=options.queue or parts.settings.queue,
            priority=options.priority,
            max_parallel=options.max_parallel,
            max_pages=options.max_pages,
            max_time_s=options.max_time_s,
            owner=owner,
            by=by,
            note=note,
            settings=parts.settings,
        )
    _send_after_commit(plain, parts, messages)
    return task


def change(
    session: AnySession,
    parts: Parts,
    verb: Verb,
    task_id: UUID | str,
    *,
    by: str | None = None,
    note: str | None = None,
) -> tuple[Task, Effect]:
    """Pause, resume or stop a task, by the table verb x status (:data:`~flask_spiderpool.terms.VERB_TABLE`).

    Returns what it came to: ``ACCEPTED``, or ``UNCHANGED`` when the task already is, or already goes, there.
    Raises :class:`~flask_spiderpool.errors.UnknownTask` and :class:`~flask_spiderpool.errors.VerbConflict`.
    """
    plain = _plain(session)
    known = as_task_id(task_id)
    note = _note(note)
    with translated():
        begin_for_real(plain)
        task, effect, messages = verbs.change(plain, known, verb, by=by, reason=note, settings=parts.settings)
    _tell_after_commit(plain, parts, verb, known, effect)
    _send_after_commit(plain, parts, messages)
    return task, effect


def retry(
    session: AnySession,
    parts: Parts,
    task_id: UUID | str,
    *,
    by: str | None = None,
    note: str | None = None,
    max_pages: int | None = None,
) -> tuple[Task, Effect]:
    """Go on with an ended task: what failed is asked for again, what is queued goes on, the rest stays.

    ``max_pages`` replaces the task's limit; a task that ended at its limit needs a larger one.
    """
    if max_pages is not None:
        max_pages = SpiderOptions.parse(max_pages=max_pages).max_pages
    plain = _plain(session)
    known = as_task_id(task_id)
    note = _note(note)
    with translated():
        begin_for_real(plain)
        task, effect, messages = verbs.retry(
            plain, known, by=by, max_pages=max_pages, reason=note, settings=parts.settings
        )
    _tell_after_commit(plain, parts, Verb.RETRY, known, effect)
    _send_after_commit(plain, parts, messages)
    return task, effect


def as_task_id(value: UUID | str) -> UUID:
    """Return ``value`` as a task's id; raises :class:`~flask_spiderpool.errors.InvalidParameter`."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidParameter("task_id", f"{value!r:.60} is not a UUID") from None


def merged_options(spider: Spider, params: dict[str, Any], settings: Settings) -> SpiderOptions:
    """Merge a spider's options with a start's; the pool's limits stand where the spider's code names none.

    A start can only tighten the limits of safety, the pool's too: whoever may start a task may not ask a
    host sooner than the operator said. Only at an address that the operator allowed by name, which is one
    of the operator's own, may a start name any delay.
    """
    own = spider.options
    pool = {name: getattr(settings, name) for name in _POOL_LIMITS}
    urls = params.get("start_urls") or own.start_urls
    named = params.get("delay_s") is not None
    if named and urls and all(_is_allowed_by_name(url, settings) for url in urls):
        pool["delay_s"] = 0.0
    base = own.override(**{name: value for name, value in pool.items() if getattr(own, name) is None})
    merged = base.override(**params)
    defaults = {"max_depth": settings.max_depth, "max_pages": settings.max_pages}
    return merged.override(
        **{name: value for name, value in defaults.items() if getattr(merged, name) is None}
    )


def _is_allowed_by_name(url: object, settings: Settings) -> bool:
    try:
        return host_key(str(url)) in settings.allow_addresses
    except FetchError:
        return False  # told with the field's name when the options are checked


def _plain(session: AnySession) -> Session:
    return session() if isinstance(session, scoped_session) else session


def _note(note: str | None) -> str | None:
    if note is not None and len(note) > MAX_NOTE_LENGTH:
        raise InvalidParameter("reason", f"is longer than {MAX_NOTE_LENGTH} characters")
    return note


def _send_after_commit(session: Session, parts: Parts, messages: Sequence[Message]) -> None:
    if messages:
        after_outermost_commit(session, lambda: parts.send(messages))


def _tell_after_commit(session: Session, parts: Parts, verb: Verb, task_id: UUID, effect: Effect) -> None:
    if effect is Effect.ACCEPTED:
        data = {"task_id": str(task_id), "desired": _DESIRED[verb].value}
        command = CommandMessage(Command.DESIRED, data)
        after_outermost_commit(session, lambda: parts.tell(command))
