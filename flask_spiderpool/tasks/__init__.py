"""LAYER 2: work that runs in Celery."""
