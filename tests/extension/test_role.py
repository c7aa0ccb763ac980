"""Which kind of process this is."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from flask_spiderpool.extension.role import is_worker_process


@pytest.mark.parametrize(
    ("argv", "worker"),
    [
        (["/venv/bin/celery", "-A", "shop", "worker", "-l", "info"], True),
        (["/venv/lib/python3.11/site-packages/celery/__main__.py", "-A", "shop", "worker"], True),
        (["/venv/bin/celery", "-A", "shop", "beat"], False),
        (["/venv/bin/celery", "-A", "shop", "inspect", "ping"], False),
        (["/venv/bin/flask", "--app", "shop", "spiderpool", "worker", "-c", "4"], True),
        (
            ["/venv/lib/python3.11/site-packages/flask/__main__.py", "--app", "shop", "spiderpool", "worker"],
            True,
        ),
        (["/venv/bin/flask", "--app", "worker", "spiderpool", "tasks"], False),
        (["/venv/bin/flask", "--app", "spiderpool", "run"], False),
        (["/venv/bin/flask", "--app", "shop", "spiderpool", "start", "worker"], False),
        (["/venv/bin/gunicorn", "shop:app"], False),
        (["worker.py"], False),
        ([""], False),
        ([], False),
    ],
)
def test_the_command_line_tells(argv: list[str], worker: bool) -> None:
    """Celery's worker and our own are workers, nothing else is."""
    assert is_worker_process(argv, {}) is worker


def test_the_variable_goes_before_the_command_line() -> None:
    """Whoever embeds a worker says so by SPIDERPOOL_ROLE, or says that it is none."""
    assert is_worker_process(["gunicorn"], {"SPIDERPOOL_ROLE": "worker"})
    assert not is_worker_process(["celery", "worker"], {"SPIDERPOOL_ROLE": "web"})
    assert is_worker_process(["celery", "worker"], {"SPIDERPOOL_ROLE": ""})


@pytest.mark.parametrize(("role", "expected"), [("worker", []), ("web", ["flask_smorest"])])
def test_a_worker_imports_no_web_layer(role: str, expected: list[str]) -> None:
    """In a worker process neither flask-smorest nor Flask-Admin is imported, and no route is mounted."""
    program = textwrap.dedent(
        """
        import sys
        from flask import Flask
        from flask_spiderpool import SpiderPool
        app = Flask("host")
        SpiderPool(app)
        print([name for name in ("flask_admin", "flask_smorest") if name in sys.modules])
        print(sum(str(rule).startswith("/spiderpool") for rule in app.url_map.iter_rules()))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"SPIDERPOOL_ROLE": role, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    imported, routes = done.stdout.splitlines()
    assert imported == repr(expected)
    assert (int(routes) > 0) is (role == "web")
