"""The gate: limits hold, nobody is starved, places are never lost."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from flask_spiderpool.crawl.gate import Gate, HostGate


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_full_host_does_not_hold_back_another() -> None:
    """A host at its own limit waits alone; another host enters at once."""

    async def scenario() -> None:
        gate, first, second = Gate(10, 1), HostGate(), HostGate()
        await gate.enter(first)
        waiting = asyncio.create_task(gate.enter(first))
        await _settle()
        assert not waiting.done()
        await asyncio.wait_for(gate.enter(second), 1)
        gate.leave(first)
        await asyncio.wait_for(waiting, 1)
        assert (gate.active, first.active, second.active) == (2, 1, 1)

    asyncio.run(scenario())


def test_waiters_enter_in_their_order() -> None:
    """Whoever waited longest enters first when the whole slice is full."""

    async def scenario() -> None:
        gate, hosts, order = Gate(1, 1), [HostGate() for _ in range(4)], []

        async def enter(index: int) -> None:
            await gate.enter(hosts[index])
            order.append(index)
            gate.leave(hosts[index])

        holder = HostGate()
        await gate.enter(holder)
        tasks = [asyncio.create_task(enter(index)) for index in range(4)]
        await _settle()
        gate.leave(holder)
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3]

    asyncio.run(scenario())


def test_a_cancelled_waiter_gives_its_place_back() -> None:
    """Cancelling a waiter, before or just after it was let in, loses no place."""

    async def scenario() -> None:
        gate, holder, host = Gate(1, 1), HostGate(), HostGate()
        await gate.enter(holder)
        waiting = asyncio.create_task(gate.enter(host))
        await _settle()
        gate.leave(holder)  # lets it in ...
        waiting.cancel()  # ... and cancels it before it ran
        await asyncio.gather(waiting, return_exceptions=True)
        assert (gate.active, host.active) == (0, 0)
        await asyncio.wait_for(gate.enter(holder), 1)

    asyncio.run(scenario())


@given(seed=st.integers(), total=st.integers(1, 5), per_host=st.integers(1, 4), hosts=st.integers(1, 6))
def test_limits_hold_in_every_order(seed: int, total: int, per_host: int, hosts: int) -> None:
    """However entering, leaving and cancelling mix, both limits hold and all work gets through."""

    async def scenario() -> None:
        rng = random.Random(seed)
        gate, gates, most = Gate(total, per_host), [HostGate() for _ in range(hosts)], [0]
        done = 0

        async def visit(host: HostGate) -> None:
            nonlocal done
            try:
                most[0] = max(most[0], gate.active)
                assert gate.active <= total
                assert host.active <= per_host
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                gate.leave(host)
                done += 1

        async def serve(host: HostGate, work: int) -> list[asyncio.Task[None]]:
            visits = []
            for _ in range(work):
                await gate.enter(host)
                visits.append(asyncio.create_task(visit(host)))
            return visits

        cancelled = asyncio.create_task(serve(HostGate(), 0))
        cancelled.cancel()
        work = [rng.randrange(6) for _ in gates]
        for visits in await asyncio.gather(*(serve(h, n) for h, n in zip(gates, work, strict=True))):
            await asyncio.gather(*visits)
        await asyncio.gather(cancelled, return_exceptions=True)
        assert done == sum(work)
        assert gate.active == 0
        assert all(host.active == 0 for host in gates)

    asyncio.run(scenario())
