"""Whatever happens in whatever order: numbers reconcile, and no queued request is left without a slot."""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
import tempfile
from typing import Any

from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy.orm import Session

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import LeasedRequest, Outcome, Ticket, Verdict
from flask_spiderpool.errors import Fenced, VerbConflict
from flask_spiderpool.store import Message, Store, verbs
from flask_spiderpool.terms import ENDED, Status, Verb
from tests.store.frontiers import Frontier, link, page

WORKERS = strategies.sampled_from(["w1", "w2"])
VERDICTS = strategies.sampled_from(list(Verdict))


class PoolMachine(RuleBasedStateMachine):
    """Slices that work, die and come back late; lost and doubled messages; verbs; keepers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="spiderpool-machine-")
        url = f"sqlite:///{self.folder}/pool.db"
        store = Store.open(url, Settings(settle_pages=4, lease_s=20, worker_threads=2))
        store.create_tables()
        self.frontier = Frontier(store, url)
        self.store = store
        self.messages: list[Message] = []
        self.tickets: list[Ticket] = []
        self.held: dict[Ticket, list[LeasedRequest]] = {}
        self.settled: list[tuple[Ticket, list[Outcome]]] = []
        self.frozen: set[Ticket] = set()
        self.mended: list[str] = []
        self.names = itertools.count()
        self.listener = logging.Handler(logging.WARNING)
        self.listener.emit = lambda record: self.mended.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("spiderpool.store").addHandler(self.listener)

    def teardown(self) -> None:
        """Close the store and delete its file."""
        logging.getLogger("spiderpool.store").removeHandler(self.listener)
        self.frontier.close()
        shutil.rmtree(self.folder)

    @initialize(
        seeds=strategies.integers(1, 6),
        slots=strategies.integers(1, 3),
        limit=strategies.sampled_from([None, 3, 50]),
        claimed=strategies.booleans(),
    )
    def start(self, seeds: int, slots: int, limit: int | None, claimed: bool) -> None:
        """A task is started."""
        hosts = itertools.cycle(["a.example", "b.example"])
        given = [link(f"seed{number}", next(hosts)) for number in range(seeds)]
        with Session(self.frontier.host) as session:
            task, messages = verbs.create_task(
                session,
                spider="news",
                options={"attempts": 2},
                seeds=given,
                queue="q",
                max_parallel=slots,
                max_pages=limit,
                settings=self.store.settings,
            )
            session.commit()
            self.task_id = task.id
        self.messages += messages
        if claimed:
            self.deliver("w1")

    def _claim(self, message: Message, worker: str) -> None:
        claim = self.store.claim(*message.ticket, worker)
        if claim is not None:
            self.tickets.append(claim.ticket)
            self.held[claim.ticket] = []

    @precondition(lambda self: self.messages)
    @rule(data=strategies.data(), worker=WORKERS)
    def deliver_again(self, data: Any, worker: str) -> None:
        """Some message arrives, and will arrive again."""
        self._claim(data.draw(strategies.sampled_from(self.messages)), worker)

    @precondition(lambda self: self.messages)
    @rule(worker=WORKERS)
    def deliver(self, worker: str) -> None:
        """All messages that are under way arrive."""
        while self.messages:
            self._claim(self.messages.pop(), worker)

    @precondition(lambda self: self.messages)
    @rule()
    def lose(self) -> None:
        """A message is lost."""
        self.messages.pop()

    def _ticket(self, data: Any) -> Ticket:
        ticket: Ticket = data.draw(strategies.sampled_from(self.tickets))
        return ticket

    @precondition(lambda self: self.tickets)
    @rule(data=strategies.data(), n=strategies.integers(1, 4), rest=strategies.booleans())
    def lease(self, data: Any, n: int, rest: bool) -> None:
        """A slice leases; perhaps a host shall rest."""
        ticket = self._ticket(data)
        suspects = not any(request.deaths for request in self.held[ticket])
        try:
            found = self.frontier.lease(
                ticket, n, default=3, suspects=suspects, rest={1: 30.0} if rest else {}
            )
        except Fenced:
            return
        assert not found.requests or self.frontier.status(self.task_id) not in ENDED
        assert sum(request.deaths > 0 for request in found.requests) <= 1
        self.held[ticket] += found.requests

    @precondition(lambda self: self.tickets)
    @rule(data=strategies.data(), verdicts=strategies.lists(VERDICTS, min_size=1, max_size=3))
    def settle(self, data: Any, verdicts: list[Verdict]) -> None:
        """A slice settles some of what it holds, with links old and new."""
        ticket = self._ticket(data)
        held = self.held[ticket]
        outcomes = []
        for verdict, request in zip(verdicts, held, strict=False):
            outcome = Outcome(request, verdict, reason="test")
            if verdict is Verdict.DONE:
                outcome.page = page(request.url, request.url)
                outcome.links = [
                    link(f"{next(self.names) % 40}", host) for host in ("a.example", "c.example")
                ]
            outcomes.append(outcome)
        try:
            self.store.settle(ticket, outcomes)
        except Fenced:
            return
        self.held[ticket] = held[len(outcomes) :]
        self.settled.append((ticket, outcomes))

    @precondition(lambda self: self.settled)
    @rule(data=strategies.data())
    def settle_again(self, data: Any) -> None:
        """The answer to a settle was lost; it is sent again, and changes nothing."""
        ticket, outcomes = data.draw(strategies.sampled_from(self.settled))
        if any(outcome.request in self.held[ticket] for outcome in outcomes):
            return  # released or retried, and leased by the same slice again
        before = self.store.numbers(self.task_id)
        with contextlib.suppress(Fenced):
            assert self.store.settle(ticket, outcomes).added == 0
        assert {**self.store.numbers(self.task_id), "deadline_in_s": None} == {
            **before,
            "deadline_in_s": None,
        }

    @precondition(lambda self: self.tickets)
    @rule(data=strategies.data())
    def release(self, data: Any) -> None:
        """A slice gives back what it holds."""
        ticket = self._ticket(data)
        try:
            self.store.settle(ticket, [Outcome(request, Verdict.RELEASE) for request in self.held[ticket]])
        except Fenced:
            return
        self.held[ticket] = []

    @precondition(lambda self: self.tickets)
    @rule(data=strategies.data(), wait=strategies.sampled_from([None, 5.0]))
    def hand_on(self, data: Any, wait: float | None) -> None:
        """A slice ends in order, or finds that it has been fenced."""
        ticket = self._ticket(data)
        self.tickets.remove(ticket)
        with contextlib.suppress(Fenced):
            self.messages += self.store.hand_on(ticket, next_in_s=wait)

    @precondition(lambda self: self.tickets)
    @rule(data=strategies.data())
    def die(self, data: Any) -> None:
        """A slice dies without a word."""
        self.tickets.remove(self._ticket(data))

    @precondition(lambda self: self.tickets)
    @rule(data=strategies.data())
    def freeze(self, data: Any) -> None:
        """A slice renews no more, but comes back and goes on as if nothing had happened (SIGSTOP)."""
        self.frozen.add(self._ticket(data))

    @rule()
    def renew(self) -> None:
        """The living renew their leases."""
        self.store.renew([ticket for ticket in self.tickets if ticket not in self.frozen])

    @rule(by_s=strategies.sampled_from([1.0, 8.0, 700.0]))
    def wait(self, by_s: float) -> None:
        """Time passes."""
        self.frontier.advance(by_s)

    @rule(by_s=strategies.sampled_from([0.0, 1.0, 25.0]), worker=WORKERS, arrive=strategies.booleans())
    def keep(self, by_s: float, worker: str, arrive: bool) -> None:
        """Time passes, a keeper makes its pass, and what it sends arrives or not; it has nothing to mend."""
        self.frontier.advance(by_s)
        self.messages += self.store.keep_house()
        assert self.mended == []
        if arrive and self.messages:
            self.deliver(worker)

    @rule(verb=strategies.sampled_from([Verb.PAUSE, Verb.RESUME, Verb.STOP, Verb.RETRY]))
    def say(self, verb: Verb) -> None:
        """A person says a verb."""
        with contextlib.suppress(VerbConflict):
            self.messages += self.frontier.verb(self.task_id, verb)

    @rule()
    def judge(self) -> None:
        """Somebody asks how the task is."""
        status = self.store.verdict(self.task_id)
        if status in ENDED or status is Status.PAUSED:
            assert self.store.numbers(self.task_id)["leased"] == 0

    @invariant()
    def numbers_reconcile(self) -> None:
        """Counters are what the rows say."""
        if hasattr(self, "task_id"):
            self.frontier.check(self.task_id)

    @invariant()
    def nothing_queued_without_a_slot(self) -> None:
        """A task that is wanted and has work has a slot that is due, sent or running."""
        if not hasattr(self, "task_id"):
            return
        stranded = self.frontier.value(
            "SELECT count(*) FROM spiderpool_task t WHERE t.desired = 'run' AND t.status IN ('pending', 'running')"
            " AND EXISTS (SELECT 1 FROM spiderpool_request r WHERE r.task_id = t.id AND r.state IN (0, 2))"
            " AND NOT EXISTS (SELECT 1 FROM spiderpool_slot s WHERE s.task_id = t.id AND s.state <> 'idle')"
        )
        assert stranded == 0

    @invariant()
    def documents_are_stored_once(self) -> None:
        """No document has two versions of one task."""
        twice = self.frontier.value(
            "SELECT count(*) FROM (SELECT 1 FROM spiderpool_page GROUP BY document_id HAVING count(*) > 1) AS x"
        )
        assert twice == 0


PoolMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPool = PoolMachine.TestCase
