"""Follow every link within the site, as the tutorial teaches it."""

import json
from pathlib import Path

import scrapy
from scrapy.linkextractors import LinkExtractor


class HeraldSpider(scrapy.Spider):
    """`-a start=URL -a report=FILE`: crawl from URL, write the count of pages to FILE."""

    name = "herald"

    def __init__(self, start, report, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [start]
        self.allowed_domains = ["127.0.0.1"]
        self.report = Path(report)
        self.links = LinkExtractor()
        self.pages = 0

    def parse(self, response):
        self.pages += 1
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url)

    def closed(self, reason):
        self.report.write_text(json.dumps({"pages": self.pages, "reason": reason}))
