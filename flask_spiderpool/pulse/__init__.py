"""Heartbeats and counters."""
