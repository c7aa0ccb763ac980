"""Everyday checks, each in an environment of its own: ``nox`` runs all but the benchmarks.

``.ci/run`` is the whole check with RabbitMQ; these are its parts, and more Python versions.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.error_on_external_run = True
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "imports", "tests", "tests_min", "docs", "build"]

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)
OLDEST = PYTHONS[0]


@nox.session
def lint(session: nox.Session) -> None:
    """Style and the usual bugs."""
    session.install("-e", ".[lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=OLDEST)
def types(session: nox.Session) -> None:
    """mypy, strict."""
    session.install("-e", ".[lint,postgres,migrate,metrics,server]")
    session.run("mypy")


@nox.session
def imports(session: nox.Session) -> None:
    """The layers: imports point one way."""
    session.install("-e", ".[lint]")
    session.run("lint-imports")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The tests, on every Python that is here; arguments go to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session(python=OLDEST)
def tests_min(session: nox.Session) -> None:
    """The tests on the lowest versions that pyproject.toml allows."""
    session.install("uv")
    session.run(
        *("uv", "pip", "install", "--python", f"{session.virtualenv.location}/bin/python"),
        *("--resolution", "lowest-direct", "-e", ".[test]"),
    )
    session.run("pytest", "-m", "not blackbox", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation; a broken reference is an error."""
    session.install("-e", ".[docs]")
    session.run("sphinx-build", "-n", "-W", "-b", "html", "docs", "docs/_build/html")


@nox.session
def build(session: nox.Session) -> None:
    """The wheel and the source archive, in dist/."""
    session.install("build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", *(str(path) for path in Path("dist").iterdir()))


@nox.session(python=OLDEST)
def bench(session: nox.Session) -> None:
    """The benchmarks, not part of any check; arguments go to tests.bench."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.bench", *session.posargs)
