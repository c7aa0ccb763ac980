"""The verbs: start, pause, resume, stop, retry."""
