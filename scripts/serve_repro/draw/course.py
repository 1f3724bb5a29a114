"""The course of one point: throughput, requests, KV cache and cache hits through its window."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes

from serve_repro.client.series import Series
from serve_repro.draw.figure import COLOURS, drawn

RATES = {"vllm:prompt_tokens": "input", "vllm:generation_tokens": "output"}
GAUGES = {"vllm:num_requests_running": "running", "vllm:num_requests_waiting": "waiting"}
USAGE = {"vllm:kv_cache_usage_perc": "KV cache in use"}
HITS = {
    "prefix cache": ("vllm:prefix_cache_hits", "vllm:prefix_cache_queries"),
    "offloaded": ("vllm:external_prefix_cache_hits", "vllm:external_prefix_cache_queries"),
}
WANTED = (*RATES, *GAUGES, *USAGE, *(name for pair in HITS.values() for name in pair))
"""Server metrics that the picture is drawn from."""


def draw(title: str, series: dict[str, Series], target: Path) -> None:
    """Draw one point; what the server did not say is left out, and said.

    Args:
        title: what stands above the picture.
        series: {server metric: its samples}, without those that are absent.
        target: .svg or .png file.
    """
    with drawn(target, 8, 7) as figure:
        figure.suptitle(title)
        rate, requests, usage, hits = figure.subplots(4, 1, sharex=True)
        _lines(rate, {label: series.get(name) for name, label in RATES.items()})
        rate.set_ylabel("tokens/s")
        _lines(requests, {label: series.get(name) for name, label in GAUGES.items()})
        requests.set_ylabel("requests")
        _lines(usage, {label: series.get(name) for name, label in USAGE.items()})
        usage.set_ylabel("share in use")
        _lines(hits, {label: hit_ratio(series, *pair) for label, pair in HITS.items()})
        hits.set_ylabel("hits / queries")
        for axes in (usage, hits):
            axes.set_ylim(-0.02, 1.02)
        hits.set_xlabel("time from the start of the window (s)")


def hit_ratio(series: dict[str, Series], hits: str, queries: str) -> Series | None:
    """Hits / queries in each slice of time; slices without a query have no ratio."""
    if hits not in series or queries not in series:
        return None
    top = dict(zip(series[hits].at_s, series[hits].values, strict=True))
    pairs = [
        (at, top[at] / asked)
        for at, asked in zip(series[queries].at_s, series[queries].values, strict=True)
        if asked > 0 and at in top
    ]
    return Series([at for at, _ in pairs], [ratio for _, ratio in pairs]) if pairs else None


def _lines(axes: Axes, lines: dict[str, Series | None]) -> None:
    for colour, (label, line) in zip(COLOURS, lines.items(), strict=False):
        if line is not None:
            axes.plot(line.at_s, line.values, label=label, color=colour, linewidth=1.2)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, loc="upper left", ncols=2)
    else:
        axes.text(0.5, 0.5, "the server did not say", transform=axes.transAxes, ha="center")
