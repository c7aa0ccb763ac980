"""LAYER 2: the work that runs in Celery."""

from flask_spiderpool.tasks.make import make_tasks

__all__ = ["make_tasks"]
