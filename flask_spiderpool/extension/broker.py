"""The Celery app: the host's own, or one made for it as Flask's documentation makes it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from celery import Celery, Task, _state
from flask import Flask

from flask_spiderpool.config import Settings
from flask_spiderpool.errors import SetupError
from flask_spiderpool.extension.folder_broker import SCHEME, make_folders, register_transport

_making = threading.Lock()


def known_celery(app: Flask, given: Celery | None) -> Celery | None:
    """Return the Celery app of a host, as far as there is one by now."""
    return given if given is not None else app.extensions.get("celery")


def find_or_make_celery(app: Flask, given: Celery | None, settings: Settings) -> Celery:
    """Return the host's Celery app; make one, and leave it in ``app.extensions``, if it has none."""
    with _making:
        celery = known_celery(app, given)
        if celery is None:
            celery = app.extensions["celery"] = _make_celery(app, settings)
        return celery


def _make_celery(app: Flask, settings: Settings) -> Celery:
    class FlaskTask(Task):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with app.app_context():
                return self.run(*args, **kwargs)

    celery = Celery(app.name, task_cls=FlaskTask, set_as_current=False)
    celery.conf.update(_configuration(app, settings))
    if _state.default_app is None:
        celery.set_default()
    return celery


def _configuration(app: Flask, settings: Settings) -> dict[str, Any]:
    """Return Celery's configuration; later wins: our defaults, the app's ``CELERY``, our own setting."""
    wanted: Mapping[str, Any] = app.config.get("CELERY") or {}
    configuration: dict[str, Any] = {
        "task_ignore_result": True,
        "task_default_queue": settings.queue,
        "broker_connection_retry_on_startup": True,
        **wanted,
    }
    if settings.broker_url is not None:
        configuration["broker_url"] = settings.broker_url
    elif not configuration.get("broker_url"):
        configuration.update(_folder_broker(app))
    return configuration


def _folder_broker(app: Flask) -> dict[str, Any]:
    """Return the settings of a broker that needs no server: files in the instance folder."""
    root = Path(app.instance_path) / "spiderpool-broker"
    queue, control = root / "queue", root / "control"
    try:
        make_folders(queue, control)
    except OSError as exc:
        raise SetupError(
            f"the folder of the default broker cannot be made ({exc}): make {app.instance_path} writable, or"
            " name a broker by SPIDERPOOL_BROKER_URL"
        ) from exc
    register_transport()
    return {
        "broker_url": f"{SCHEME}://localhost",
        "broker_transport_options": {
            "data_folder_in": str(queue),
            "data_folder_out": str(queue),
            "control_folder": str(control),
            "polling_interval": 0.1,
        },
    }
