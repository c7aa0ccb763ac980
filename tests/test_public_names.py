"""What ``from flask_spiderpool import ...`` gives."""

from __future__ import annotations

import importlib.metadata
import inspect
import types

import flask_spiderpool
from flask_spiderpool import bus, control, crawl, extension, limiter, migrations, models, state, store

PACKAGES = [flask_spiderpool, bus, control, extension, limiter, migrations, models, state, store]


def test_the_public_names() -> None:
    """Exactly these; adding one is a decision."""
    assert flask_spiderpool.__all__ == [
        "Page",
        "Request",
        "Spider",
        "SpiderPool",
        "SpiderPoolError",
        "current_pool",
    ]


def test_every_name_is_there() -> None:
    """What a package lists it has (ruff keeps the lists sorted)."""
    for package in [*PACKAGES, crawl]:
        names = getattr(package, "__all__", [])
        assert [name for name in names if name not in vars(package)] == [], package.__name__


def test_public_names_say_what_they_are() -> None:
    """Each public class and function, and each public method of those, has a docstring."""
    silent = []
    for package in PACKAGES:
        for name in getattr(package, "__all__", []):
            thing = inspect.getattr_static(package, name)
            # By its type: ``current_pool`` says that it is whatever it stands for.
            if type(thing) not in (type, types.FunctionType):
                continue
            if not inspect.getdoc(thing):
                silent.append(f"{package.__name__}.{name}")
            if inspect.isclass(thing) and thing.__module__.startswith("flask_spiderpool"):
                silent += [
                    f"{package.__name__}.{name}.{method}"
                    for method, function in vars(thing).items()
                    if inspect.isfunction(function) and not method.startswith("_") and not function.__doc__
                ]
    assert silent == []


def test_the_version_is_that_of_the_distribution() -> None:
    """One number, in the package and in its metadata."""
    assert flask_spiderpool.__version__ == importlib.metadata.version("Flask-SpiderPool")


def test_the_command_line_is_registered_once() -> None:
    """``flask spiderpool`` comes from the entry point alone, so that no command stands there twice."""
    found = [
        entry
        for entry in importlib.metadata.entry_points(group="flask.commands")
        if entry.name == "spiderpool"
    ]
    assert {entry.value for entry in found} == {"flask_spiderpool.cli:spiderpool"}
