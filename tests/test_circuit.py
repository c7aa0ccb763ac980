"""Keeping callers off a service that has just failed."""

from __future__ import annotations

from flask_spiderpool.circuit import Circuit


class Seconds:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_closed_lets_everyone_in() -> None:
    """Without a failure nobody waits, and a success is no news."""
    circuit = Circuit(clock=Seconds())
    assert (circuit.enter(), circuit.left_s(), circuit.succeeded()) == (0.0, 0.0, False)


def test_one_caller_probes() -> None:
    """After the rest one caller tries and the others go on waiting."""
    clock = Seconds()
    circuit = Circuit(clock=clock)
    assert circuit.failed()
    assert circuit.enter() == 0.5
    clock.now = 0.5
    assert circuit.left_s() == 0.0
    assert [circuit.enter(), circuit.enter()] == [0.0, 0.5]


def test_rests_double_to_a_limit_and_only_the_first_is_news() -> None:
    """0.5, 1, 2, 4, 5, 5 ... seconds; only the first failure of a row says so."""
    circuit = Circuit(clock=Seconds())
    news, rests = [], []
    for _ in range(6):
        news.append(circuit.failed())
        rests.append(circuit.left_s())
    assert news == [True, False, False, False, False, False]
    assert rests == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_an_answer_ends_it() -> None:
    """After a success all may enter, once it is news, and the next rest is short again."""
    circuit = Circuit(clock=Seconds())
    circuit.failed()
    circuit.failed()
    assert [circuit.succeeded(), circuit.succeeded()] == [True, False]
    assert circuit.enter() == 0.0
    circuit.failed()
    assert circuit.left_s() == 0.5
