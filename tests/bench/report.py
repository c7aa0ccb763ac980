"""Runs as a Markdown table and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.crawlers import Run

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
MIB = 1024 * 1024


def table(runs: Sequence[Run], what: Mapping[str, str], baseline: str) -> str:
    """Return one row a crawler: medians over its rounds, and its ratio to the baseline round by round."""
    lines = [
        "| | rounds | pages | pages per CPU-second (least to most) | CPU s per 1,000 pages | pages/s on the clock "
        f"| peak RSS | × {baseline}, by round |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, words in what.items():
        mine = [run for run in runs if run.crawler == name]
        if not mine:
            continue
        rates = [run.pages_per_cpu_s for run in mine]
        base = [run.pages_per_cpu_s for run in runs if run.crawler == baseline]
        ratios = [rate / other for rate, other in zip(rates, base, strict=False)]
        lines.append(
            f"| {words} | {len(mine)} | {statistics.median(run.pages for run in mine):,.0f} "
            f"| **{statistics.median(rates):,.0f}** ({min(rates):,.0f} to {max(rates):,.0f}) "
            f"| {1000 / statistics.median(rates):.2f} "
            f"| {statistics.median(run.pages_per_s for run in mine):,.0f} "
            f"| {max(run.usage.peak_rss_bytes for run in mine) / MIB:,.0f} MiB "
            f"| {', '.join(f'{ratio:.2f}' for ratio in ratios) or '-'} |"
        )
    return "\n".join(lines)


def machine() -> str:
    """Return what the figures were measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next(
            (line.split(":")[1].strip() for line in info.open() if line.startswith("model name")), model
        )
    return f"{os.cpu_count()} cores ({model}), {platform.system()}, Python {platform.python_version()}"


def to_json(runs: Sequence[Run], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything measured."""
    return {**about, "machine": machine(), "runs": [run.to_json() for run in runs]}


def put_into(document: Path, text: str) -> None:
    """Replace what stands between the two markers of a document."""
    whole = document.read_text(encoding="utf-8")
    head, rest = whole.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    document.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")
