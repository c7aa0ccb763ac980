"""What holds for every test: real servers, nothing left behind, nothing sent beyond this machine."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Generator

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.servers.fixtures import (  # noqa: F401 - pytest finds fixtures by their names here
    amqp_url,
    db_url,
    namespace,
    new_postgres_url,
    own_postgres,
    own_redis,
    postgres_server,
    postgres_url,
    redis_server,
    redis_url,
    sqlite_url,
)

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")

# A shared machine stalls now and then; a deadline would then blame the code.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("long", settings.get_profile("dev"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the options that must be known before the folders are read."""
    parser.addoption(
        "--blackbox-runs",
        type=int,
        default=1,
        metavar="N",
        help="run each random kill scenario of tests/blackbox with N seeds (default: 1)",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a RabbitMQ its tests are skipped on a laptop and fail in CI."""
    if item.get_closest_marker("rabbitmq") and not os.environ.get("SPIDERPOOL_TEST_AMQP"):
        reason = "SPIDERPOOL_TEST_AMQP names no RabbitMQ server (.ci/run starts one)"
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that leaves an app context pushed; pop it, so that the next test is not affected."""
    result = yield
    left = _pop_app_contexts()
    if left:
        pytest.fail(f"{item.nodeid} left {left} app context(s) pushed", pytrace=False)
    return result


def _pop_app_contexts() -> int:
    flask = sys.modules.get("flask")
    popped = 0
    while flask is not None and flask.has_app_context():
        flask.globals.app_ctx._get_current_object().pop()
        popped += 1
    return popped


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if a process that a test started outlives the last fixture."""
    left = [child for child in psutil.Process().children(recursive=True) if _is_ours(child)]
    for child in left:
        child.kill()
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\nFAILED: processes were left running: {left}", red=True)


def _is_ours(process: psutil.Process) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        # Python's own, kept on purpose until the interpreter ends.
        return "resource_tracker" not in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def _refuse_other_machines(event: str, args: tuple[object, ...]) -> None:
    """Refuse connections that Python code opens to anything but this machine."""
    if event != "socket.connect" or not isinstance(args[1], tuple):
        return
    host = str(args[1][0]).partition("%")[0]
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise PermissionError(f"a test may not connect to {args[1]}")


sys.addaudithook(_refuse_other_machines)
