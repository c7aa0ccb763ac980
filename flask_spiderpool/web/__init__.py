"""LAYER 1: people and programs talk to the pool."""
