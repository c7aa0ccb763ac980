"""What only the Redis limiter has: a server that may be away, restarted, or slow."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from redis import Redis

from flask_spiderpool.limiter.base import Grant
from flask_spiderpool.limiter.redis import RedisLimiter
from tests.limiter.conftest import HandClock
from tests.servers.process import free_port
from tests.servers.redis import RedisServer


@pytest.fixture
def on_own(own_redis: RedisServer, clock: HandClock) -> Iterator[RedisLimiter]:
    """A limiter on a Redis that the test may kill, old enough for full buckets."""
    limiter = RedisLimiter(own_redis.url, clock=clock, now=clock)
    limiter.acquire("first-use", 1.0, 1)
    clock.advance(100_000)
    yield limiter
    limiter.close()


def test_the_server_s_own_time_counts(redis_url: str) -> None:
    """Without a clock of the test the bucket fills by the server's clock."""
    limiter = RedisLimiter(redis_url)
    born = time.monotonic()
    first = limiter.acquire("site", 20.0, 50)
    assert first == Grant(0, pytest.approx(0.05))
    granted = 0
    while granted < 4:
        granted += limiter.acquire("site", 20.0, 50).granted
        assert time.monotonic() - born < 30
    assert time.monotonic() - born >= 4 / 20
    limiter.close()


def test_a_restart_grants_no_second_burst(
    on_own: RedisLimiter, own_redis: RedisServer, clock: HandClock
) -> None:
    """After kill -9 and an empty start a bucket holds rate x age of the new store."""
    assert on_own.acquire("site", 2.0, 9, n=99).granted == 8
    own_redis.restart()
    clock.advance(0.25)
    assert on_own.acquire("site", 2.0, 9, n=99) == Grant(0, pytest.approx(0.5))
    clock.advance(1.0)
    assert on_own.acquire("another", 2.0, 9, n=99).granted == 2


@pytest.mark.parametrize("known", [True, False])
def test_an_old_snapshot_grants_no_second_burst(
    on_own: RedisLimiter, own_redis: RedisServer, clock: HandClock, known: bool
) -> None:
    """A snapshot from before the burst was spent is not believed, neither its buckets nor its age."""
    if known:
        assert on_own.acquire("site", 2.0, 9, n=1).granted == 1
    with Redis.from_url(own_redis.url) as client:
        client.save()
    assert on_own.acquire("site", 2.0, 9, n=99).granted == (7 if known else 8)
    own_redis.restart()
    clock.advance(0.25)
    assert on_own.acquire("site", 2.0, 9, n=99).granted == 0


def test_away_means_nothing_is_granted(
    on_own: RedisLimiter, own_redis: RedisServer, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreachable Redis grants nothing, raises nothing, is logged once and used again when it is back."""
    own_redis.kill()
    grants = []
    for _ in range(5):
        grants.append(on_own.acquire("site", 2.0, 9))
        clock.advance(grants[-1].wait_s)
    assert [grant.granted for grant in grants] == [0] * 5
    assert [grant.wait_s for grant in grants] == pytest.approx([0.5, 1.0, 2.0, 4.0, 5.0])
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    own_redis.start()
    on_own.acquire("site", 2.0, 9)
    clock.advance(100)
    assert on_own.acquire("site", 2.0, 9, n=99).granted == 8


def test_a_dead_redis_is_left_alone(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it rests nobody tries to connect, and even an unlimited key waits."""
    limiter = RedisLimiter(f"redis://127.0.0.1:{free_port()}/0", clock=clock, now=clock)
    assert limiter.acquire("site", 0.0, 1).granted == 0
    tries = []
    monkeypatch.setattr(Redis, "evalsha", lambda *args: tries.append(args))
    for _ in range(100):
        assert limiter.acquire("site", 0.0, 1) == Grant(0, 0.5)
    limiter.block("site", 5.0)
    assert tries == []


def test_a_hung_redis_costs_a_second(own_redis: RedisServer) -> None:
    """A server that is frozen costs the first caller its timeout and the others nothing."""
    limiter = RedisLimiter(own_redis.url, timeout_s=0.3)
    limiter.acquire("site", 0.0, 1)
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert limiter.acquire("site", 0.0, 1).granted == 0
        assert time.monotonic() - began < 2
        assert limiter.acquire("site", 0.0, 1).granted == 0
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
        limiter.close()


def test_a_block_outlives_an_outage(on_own: RedisLimiter, own_redis: RedisServer, clock: HandClock) -> None:
    """A block that could not be written is written before the key's next grant."""
    own_redis.kill()
    on_own.block("site", 60.0)
    on_own.block("site", 20.0)
    own_redis.start()
    clock.advance(10)
    assert on_own.acquire("site", 0.0, 1) == Grant(0, pytest.approx(50.0))
    with Redis.from_url(own_redis.url) as client:
        assert float(client.hget("spiderpool:limiter:host:site", "until") or 0) > clock.now + 49
    clock.advance(50)
    assert on_own.acquire("site", 0.0, 1).granted == 1


def test_processes_share_buckets(redis_url: str, clock: HandClock) -> None:
    """Two limiters on one server and prefix share a bucket; another prefix is another pool."""
    ours, same = (RedisLimiter(redis_url, prefix="one", clock=clock, now=clock) for _ in range(2))
    other = RedisLimiter(redis_url, prefix="two", clock=clock, now=clock)
    for limiter in (ours, other):
        limiter.acquire("first-use", 1.0, 1)
    clock.advance(1_000)
    assert ours.acquire("site", 1.0, 5, n=3).granted == 3
    assert same.acquire("site", 1.0, 5, n=3).granted == 1
    assert other.acquire("site", 1.0, 5, n=3).granted == 3
    for limiter in (ours, same, other):
        limiter.close()


def test_buckets_expire_once_full(redis_url: str, clock: HandClock) -> None:
    """A key goes a minute after its bucket is full, so hosts of long ago cost no memory."""
    limiter = RedisLimiter(redis_url, clock=clock, now=clock)
    limiter.acquire("first-use", 1.0, 1)
    clock.advance(1_000)
    limiter.acquire("site", 2.0, 21, n=20)
    with Redis.from_url(redis_url) as client:
        assert client.pttl("spiderpool:limiter:host:site") == pytest.approx(70_000, abs=2_000)
        assert client.ttl("spiderpool:limiter:birth") == -1
    limiter.close()


def test_a_given_client_stays_open(redis_url: str) -> None:
    """The limiter closes only what it opened."""
    with Redis.from_url(redis_url) as client:
        RedisLimiter(client).close()
        assert client.ping()


def test_scripts_may_be_forgotten(redis_url: str) -> None:
    """SCRIPT FLUSH costs nothing: the script is loaded again."""
    limiter = RedisLimiter(redis_url)
    limiter.acquire("site", 0.0, 1)
    with Redis.from_url(redis_url) as client:
        client.script_flush()
    assert limiter.acquire("site", 0.0, 1).granted == 1
    limiter.close()


def test_threads_share_the_pain(clock: HandClock) -> None:
    """Many threads on a dead Redis all get their answer."""
    limiter = RedisLimiter(f"redis://127.0.0.1:{free_port()}/0", clock=clock, now=clock)
    grants: list[Grant] = []
    threads = [
        threading.Thread(target=lambda: grants.append(limiter.acquire("site", 1.0, 5))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(grants) == 16
    assert {grant.granted for grant in grants} == {0}
    assert all(grant.wait_s > 0 for grant in grants)
