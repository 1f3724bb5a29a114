"""Read the client's exports as streams: the files of a long replay do not fit into memory."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ijson
import numpy as np

from serve_repro.documents import read_json
from serve_repro.errors import UserError

RECORDS = "profile_export.jsonl"
AGGREGATE = "profile_export_aiperf.json"
SERVER_SERIES = "server_metrics_export.json"


class Record(NamedTuple):
    """One request. Times in ms unless a name says otherwise; None where the client has no value."""

    profiled: bool
    """Sent in the measured window (otherwise in the warm-up)."""
    error: str | None
    """Kind of error; None for a request that succeeded."""
    start_ns: int
    end_ns: int
    input_tokens: int | None
    output_tokens: int | None
    ttft_ms: float | None
    itl_ms: float | None
    """Mean gap between the tokens of this answer."""
    e2e_ms: float | None
    tree: str | None
    """Which live session tree (root and subagents) sent it."""
    subagent: bool
    """Sent by a subagent of its tree, not by its root."""
    length_off_pct: float | None
    """How far the answer's length is from the one that was asked for, in percent of it."""
    full_itl_ms: float | None
    """Mean gap between tokens if all of the answer counts, its last bytes too."""


def records(folder: Path) -> Iterator[Record]:
    """Every request that the client recorded, in file order.

    Raises:
        FileNotFoundError: there is no record file.
        ValueError: a line is no record.
    """
    with (folder / RECORDS).open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                record = _record(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{RECORDS}:{number} is no record: {error!r}") from error
            yield record


def _record(row: dict[str, Any]) -> Record:
    metadata, metrics = row["metadata"], row.get("metrics") or {}

    def value(name: str) -> Any:
        return metrics[name]["value"] if name in metrics else None

    error = row.get("error")
    if error is None and metadata.get("was_cancelled"):
        error = {"type": "cancelled"}
    return Record(
        profiled=metadata["benchmark_phase"] == "profiling",
        error=None if error is None else str(error.get("type") or error.get("code") or "error"),
        start_ns=metadata["request_start_ns"],
        end_ns=metadata["request_end_ns"],
        input_tokens=value("usage_prompt_tokens"),
        output_tokens=value("usage_completion_tokens"),
        ttft_ms=value("time_to_first_token"),
        itl_ms=value("inter_token_latency"),
        e2e_ms=value("request_latency"),
        tree=metadata.get("root_correlation_id"),
        subagent=bool(metadata.get("agent_depth")),
        length_off_pct=value("osl_mismatch_diff_pct"),
        full_itl_ms=value("full_response_inter_token_latency"),
    )


class Totals(NamedTuple):
    """What the records add up to."""

    completed: int
    """Profiled requests without an error."""
    failed: int
    """Profiled requests with one."""
    warmup: int
    warmup_failed: int
    warmup_subagents_failed: int
    """Those of them that subagents sent; the client itself only heeds the roots'."""
    no_output: int
    """Profiled requests that count as successes and brought no token.

    An error inside a 200 answer's stream is one: the client leaves its `error` empty and its usage out.
    """
    warmup_no_output: int
    """The same in the warm-up."""
    errors: dict[str, int]
    """Errors by kind, warm-up included."""
    length_told: int
    """Completed requests of which the client says how their length compares with what was asked."""
    length_off: int
    """Those of them that have another length."""
    input_tokens: int
    output_tokens: int
    """Tokens of all requests without an error, warm-up included (as the server counts)."""


def totals(found: Iterable[Record]) -> Totals:
    """Count the records of one replay."""
    counts: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for record in found:
        phase = "profiled" if record.profiled else "warmup"
        counts[f"{phase}_{'ok' if record.error is None else 'failed'}"] += 1
        if record.error is not None:
            errors[record.error] += 1
            counts[f"{phase}_subagents_failed"] += int(record.subagent)
            continue
        if record.profiled and record.length_off_pct is not None:
            counts["length_told"] += 1
            counts["length_off"] += int(record.length_off_pct != 0)
        counts["input"] += record.input_tokens or 0
        counts["output"] += record.output_tokens or 0
        counts[f"{phase}_no_output"] += int(not record.output_tokens)
    return Totals(
        completed=counts["profiled_ok"],
        failed=counts["profiled_failed"],
        warmup=counts["warmup_ok"] + counts["warmup_failed"],
        warmup_failed=counts["warmup_failed"],
        warmup_subagents_failed=counts["warmup_subagents_failed"],
        no_output=counts["profiled_no_output"],
        warmup_no_output=counts["warmup_no_output"],
        errors=dict(errors),
        length_told=counts["length_told"],
        length_off=counts["length_off"],
        input_tokens=counts["input"],
        output_tokens=counts["output"],
    )


class Activity(NamedTuple):
    """When the window's requests were under way, failed ones included."""

    in_flight: float
    """Time average from the first start to the last end."""
    longest_gap_s: float
    """Longest time between two of them in which none was under way."""
    trees: int
    """Session trees that sent one; 0 if the client does not say."""


def activity(found: Iterable[Record]) -> Activity | None:
    """How one replay's window was filled; None if no request was recorded in it."""
    starts, ends, trees = array("q"), array("q"), set()
    for record in found:
        if record.profiled:
            starts.append(record.start_ns)
            ends.append(record.end_ns)
            trees.add(record.tree)
    if not starts:
        return None
    order = np.argsort(np.asarray(starts), kind="stable")  # records come by their ends
    start, end = np.asarray(starts)[order], np.asarray(ends)[order]
    busy_until = np.maximum.accumulate(end)
    return Activity(
        in_flight=int((end - start).sum()) / max(int(busy_until[-1] - start[0]), 1),
        longest_gap_s=int((start[1:] - busy_until[:-1]).max(initial=0)) / 1e9,
        trees=len(trees - {None}),
    )


def aggregate(folder: Path) -> dict[str, Any]:
    """The client's own aggregate."""
    value: dict[str, Any] = read_json(folder / AGGREGATE)
    return value


def sampled(folder: Path, name: str) -> dict[str, Any] | None:
    """One metric of the server, as the client sampled it over its window; None if it did not.

    The file holds every slice of every metric: only the wanted one is built, and what follows it is
    not read. One server has one series; of more, the first counts.

    Raises:
        UserError: the export is damaged.
    """
    series: dict[str, Any] | None = first_item(folder, f"metrics.{name}.series.item")
    return series


def first_item(folder: Path, prefix: str) -> Any:
    """The first value at a place of the client's export of the server's metrics; None if it has none.

    Raises:
        UserError: the export is damaged.
    """
    path = folder / SERVER_SERIES
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            return next(ijson.items(stream, prefix, use_float=True), None)
    except ijson.JSONError as error:
        raise UserError(f"is not valid JSON: {error}", where=str(path)) from error


def gauges(folder: Path, names: Iterable[str]) -> dict[str, dict[str, float] | None]:
    """{gauge: its statistics over the measured window}; None for a gauge that was not sampled."""
    return {name: (sampled(folder, name) or {}).get("stats") for name in names}
