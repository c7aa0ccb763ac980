"""A pool of well-behaved web crawlers inside your Flask app."""
