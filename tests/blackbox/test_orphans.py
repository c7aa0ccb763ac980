"""Nothing of ours outlives what started it."""

from __future__ import annotations

from collections.abc import Callable

from tests.blackbox.deployment import Embedded
from tests.blackbox.life import argument_of, eventually, wait_gone
from tests.blackbox.site import Site


def _whole_family(embedded: Embedded) -> bool:
    """Tell whether parent, worker and extraction child all live."""
    return embedded.worker() is not None and embedded.extraction_child() is not None


def test_killed_parent_leaves_no_orphan(
    make_site: Callable[..., Site], make_embedded: Callable[..., Embedded]
) -> None:
    """kill -9 of ``up`` in the midst of a crawl: worker and extraction child are gone within 5 s."""
    embedded = make_embedded(make_site(500, delay_s=0.05))
    embedded.begin()
    eventually("worker and extraction child live", lambda: _whole_family(embedded), 60)
    family = embedded.up.family()
    assert any(argument_of(process, "worker") for process in family)
    embedded.up.kill()
    wait_gone(family, timeout_s=5)


def test_killed_worker_leaves_no_extraction_child(
    make_site: Callable[..., Site], make_embedded: Callable[..., Embedded]
) -> None:
    """kill -9 of the worker: its extraction child is gone within 5 s, and ``up`` starts another worker."""
    embedded = make_embedded(make_site(500, delay_s=0.05))
    embedded.begin()
    eventually("worker and extraction child live", lambda: _whole_family(embedded), 60)
    worker, child = embedded.worker(), embedded.extraction_child()
    assert worker is not None
    assert child is not None
    worker.kill()
    wait_gone([worker, child], timeout_s=5)
    eventually("up has started another worker", lambda: embedded.worker() is not None, 60)


def test_terminated_parent_leaves_no_orphan(
    make_site: Callable[..., Site], make_embedded: Callable[..., Embedded]
) -> None:
    """SIGTERM to ``up`` ends it in order, with exit code 0, and with all its children."""
    embedded = make_embedded(make_site(500, delay_s=0.05))
    embedded.begin()
    eventually("worker and extraction child live", lambda: _whole_family(embedded), 60)
    family = embedded.up.family()
    assert embedded.up.terminate(timeout_s=30) == 0
    wait_gone(family, timeout_s=5)
