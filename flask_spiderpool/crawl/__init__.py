"""LAYER 3: the engine."""
