"""A pool of well-behaved web crawlers inside your Flask app."""

from flask_spiderpool.crawl.page import Page
from flask_spiderpool.crawl.spider import Request, Spider
from flask_spiderpool.errors import SpiderPoolError
from flask_spiderpool.extension import SpiderPool
from flask_spiderpool.state import current_pool

__all__ = ["Page", "Request", "Spider", "SpiderPool", "SpiderPoolError", "current_pool"]

__version__ = "0.1.0"
