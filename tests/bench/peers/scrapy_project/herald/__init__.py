"""The Scrapy project that the benchmark measures."""
