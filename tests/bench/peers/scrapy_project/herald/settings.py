"""What `scrapy startproject` writes, with 32 requests at once and no delay."""

BOT_NAME = "herald"
SPIDER_MODULES = ["herald.spiders"]
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS = 32
CONCURRENT_REQUESTS_PER_DOMAIN = 32
DOWNLOAD_DELAY = 0
FEED_EXPORT_ENCODING = "utf-8"
# In Scrapy's favour: neither log lines per page nor a console that nobody opens.
LOG_LEVEL = "INFO"
TELNETCONSOLE_ENABLED = False
