"""Frontier and results in SQL."""
