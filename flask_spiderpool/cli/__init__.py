"""Command line: ``flask spiderpool ...``."""
