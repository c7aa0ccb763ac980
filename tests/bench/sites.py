"""Sites and peers that are made once and kept in a cache folder between runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.gen_site import Herald

PORT = 18480  #: absolute links carry it, so a cached site belongs to one port


def cache_folder() -> Path:
    """Return the folder that outlives a run: ``$SPIDERPOOL_BENCH_CACHE`` or one below ``~/.cache``."""
    named = os.environ.get("SPIDERPOOL_BENCH_CACHE")
    folder = Path(named) if named else Path.home() / ".cache" / "flask-spiderpool-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def site_folder(pages: int, port: int = PORT) -> Path:
    """Return the folder of the site of ``pages`` pages, written at first use (about 4 ms a page)."""
    folder = cache_folder() / f"herald-{port}-{pages}"
    done = folder / ".complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        Herald(f"http://127.0.0.1:{port}", pages).write(folder)
        done.touch()
    return folder


def peer_python(package: str) -> Path:
    """Return the Python of a virtual environment that holds ``package``, made at first use."""
    folder = cache_folder() / f"venv-{package}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    done = folder / ".complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
        done.touch()
    return python


def version_of(python: Path | str, package: str) -> str:
    """Return the version of ``package`` in the environment of ``python``."""
    code = f"import json, importlib.metadata as m; print(json.dumps(m.version({package!r})))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return str(json.loads(found.stdout))
