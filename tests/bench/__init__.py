"""Benchmarks; kept out of the test run. ``python -m tests.bench`` compares the pool with Scrapy."""
