"""Whether the client could sample the server's /metrics all through its window."""

from __future__ import annotations

from pathlib import Path

from serve_repro.client.artifacts import SERVER_SERIES, first_item, sampled
from serve_repro.errors import UserError

_SAMPLED = "vllm:num_requests_running"
"""A gauge that every vLLM has, idle or not. A slice in which it was not sampled is left out."""


def longest_unsampled_s(folder: Path) -> float | None:
    """Longest time of the window without a sample, to the length of the client's slices.

    None if nothing was sampled at all: the client goes on without metrics if its first look fails.

    Raises:
        UserError, KeyError: the export is damaged.
    """
    series = sampled(folder, _SAMPLED) or {}
    slices = sorted((part["start_ns"], part["end_ns"]) for part in series.get("timeslices") or [])
    if not slices:
        return None
    window = first_item(folder, "summary.phase_time_ranges.profiling")
    if window is None:
        raise UserError("does not tell when the window was", where=str(folder / SERVER_SERIES))
    until, longest = window["start_ns"], 0
    for start, end in [*slices, (window["end_ns"], window["end_ns"])]:
        longest = max(longest, start - until)
        until = max(until, end)
    return float(longest) / 1e9
