"""Sphinx configuration. Build: ``sphinx-build -n -W docs docs/_build``."""

import tomllib
from pathlib import Path

project = "Flask-SpiderPool"
author = "The Flask-SpiderPool maintainers"
project_copyright = author
release = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"][
    "version"
]
version = release

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Flask-SpiderPool {release}"
