"""One slice in a worker: claim the slot, run the engine, hand the slot on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from flask_spiderpool.bus.base import EventMessage
from flask_spiderpool.crawl.engine import SliceRun
from flask_spiderpool.crawl.guard import LeaseGuard, boot_clock
from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.crawl.rules import TaskRules
from flask_spiderpool.crawl.spider import Spider
from flask_spiderpool.errors import Fenced, SpiderPoolError, Unavailable, UnknownSpider, UnknownTask
from flask_spiderpool.store import Claim, Message
from flask_spiderpool.tasks.runtime import CLOSE_EXTRA_S, Runtime
from flask_spiderpool.terms import ENDED, EndReason, Event, Status

logger = logging.getLogger(__name__)

CRASH_REST_S = 10.0  #: a slice that raised what it should not is tried again after this


def run_slice(runtime: Runtime, ticket: Ticket) -> Sequence[Message]:
    """Claim the slot that a message named, work, hand on; return the messages that shall go out now.

    A message that is old or doubled claims nothing; one that comes while the process winds up is put back. A
    slice that was fenced ends silently: its slot belongs to another epoch. When the database is away the slice
    ends too; the keeper makes up for it.
    """
    with runtime.slice_place() as has_place:
        # Before the statement is sent: counted from the answer the lease would seem longer than it is.
        asked_at = boot_clock()
        store = runtime.parts.store
        try:
            if not has_place:
                store.submit(store.decline, ticket).result()
                return ()
            claim = store.submit(store.claim, *ticket, runtime.name).result()
            return () if claim is None else _claimed(runtime, claim, asked_at)
        except Fenced:
            logger.info("slice %s ends: another epoch has begun", _shown(ticket))
        except Unavailable as error:
            logger.warning("slice %s ends: %s", _shown(ticket), error)
    return ()


def _claimed(runtime: Runtime, claim: Claim, asked_at: float) -> Sequence[Message]:
    settings = runtime.parts.settings
    guard = LeaseGuard(
        claim.ticket,
        asked_at=asked_at,
        lease_s=claim.lease_s,
        margin_s=settings.send_margin_s,
        desired=claim.desired,
    )
    runtime.renewals.add(guard)
    try:
        return _work(runtime, claim, guard)
    finally:
        runtime.renewals.discard(guard)


def _work(runtime: Runtime, claim: Claim, guard: LeaseGuard) -> Sequence[Message]:
    store = runtime.parts.store
    try:
        spider, rules = _load(runtime, claim)
    except UnknownSpider as error:
        return _fail(runtime, claim, EndReason.SPIDER_MISSING, error)
    except (SpiderPoolError, ValueError, TypeError) as error:
        return _fail(runtime, claim, EndReason.SPIDER_BROKEN, error)
    limit_s = slice_limit_s(runtime, rules)
    try:
        next_in_s = runtime.run(SliceRun(runtime.engine, guard, spider, rules), limit_s)
    except (Fenced, Unavailable):
        raise
    except TimeoutError:
        logger.error("slice %s did not end within %.0f s and was cancelled", _shown(claim.ticket), limit_s)
        next_in_s = CRASH_REST_S
    except Exception:
        logger.exception("slice %s failed; it goes on in %.0f s", _shown(claim.ticket), CRASH_REST_S)
        next_in_s = CRASH_REST_S
    else:
        if runtime.draining:
            next_in_s = 0.0  # whoever is alive goes on at once
    messages = store.submit(store.hand_on, claim.ticket, next_in_s=next_in_s).result()
    _tell(runtime, claim.ticket)
    return messages


def _tell(runtime: Runtime, ticket: Ticket) -> None:
    """Tell whoever listens how the task stands, and forget what an ended one had seen. A hint: a failure costs
    nobody anything."""
    store = runtime.parts.store
    try:
        numbers = store.submit(store.numbers, ticket.task_id).result()
    except (Unavailable, UnknownTask) as error:
        logger.info("slice %s: its end could not be told: %s", _shown(ticket), error)
        return
    if numbers["status"] in ENDED:
        runtime.engine.seen.forget(ticket.task_id)
    if runtime.parts.bus is not None:
        runtime.parts.bus.publish(_event(ticket, numbers))


def _event(ticket: Ticket, numbers: dict[str, Any]) -> EventMessage:
    """One message a slice: that the task has got on, or what has become of it."""
    data = {"task_id": str(ticket.task_id)}
    data |= {name: numbers[name] for name in ("discovered", "done", "failed", "skipped")}
    if numbers["status"] == Status.RUNNING:
        return EventMessage(Event.TASK_PROGRESS, data)
    return EventMessage(
        Event.TASK_STATUS, data | {"status": numbers["status"], "reason": numbers["end_reason"]}
    )


def _load(runtime: Runtime, claim: Claim) -> tuple[Spider, TaskRules]:
    spider = runtime.parts.registry.get(claim.spider)
    options = SpiderOptions.from_json(claim.options)
    return spider, TaskRules.of(spider, options, runtime.parts.settings)


def slice_limit_s(runtime: Runtime, rules: TaskRules) -> float:
    """Return how long a healthy slice can last: its time, the last request of it, the last settle."""
    settings = runtime.parts.settings
    return settings.slice_s + rules.request_timeout_s + settings.stop_grace_s + 4 * CLOSE_EXTRA_S


def _fail(runtime: Runtime, claim: Claim, reason: EndReason, error: Exception) -> Sequence[Message]:
    """End the task: no worker can run its spider as it is."""
    logger.error("task %s failed: %s: %s", claim.ticket.task_id, reason.value, error)
    store = runtime.parts.store
    return store.submit(store.fail_task, claim.ticket, reason, str(error)).result() or ()


def _shown(ticket: Ticket) -> str:
    return f"{ticket.task_id}/{ticket.n}@{ticket.epoch}"
