"""Whether the client could sample the server's /metrics all through its window."""

from __future__ import annotations

from pathlib import Path

from serve_repro.client.artifacts import SERVER_SERIES
from serve_repro.documents import read_json

_SAMPLED = "vllm:num_requests_running"
"""A gauge that every vLLM has, idle or not. A slice in which it was not sampled is left out."""


def longest_unsampled_s(folder: Path) -> float | None:
    """Longest time of the window without a sample, to the length of the client's slices.

    None if nothing was sampled at all: the client goes on without metrics if its first look fails.

    Raises:
        UserError, KeyError, TypeError: the export is damaged.
    """
    path = folder / SERVER_SERIES
    if not path.is_file():
        return None
    export = read_json(path)
    series = (export["metrics"].get(_SAMPLED) or {}).get("series") or [{}]
    slices = sorted((part["start_ns"], part["end_ns"]) for part in series[0].get("timeslices") or [])
    if not slices:
        return None
    window = export["summary"]["phase_time_ranges"]["profiling"]
    until, longest = window["start_ns"], 0
    for start, end in [*slices, (window["end_ns"], window["end_ns"])]:
        longest = max(longest, start - until)
        until = max(until, end)
    return float(longest) / 1e9
