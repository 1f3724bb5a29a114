"""What reading a long replay costs: seconds and peak memory of a row, of the gates and of a picture.

Artifacts are made of the size of one hour at the published load, and of a harsher size; then all of
both again at twice the size. Each reader is a process of its own. In the same run, two others compute
three of the row's numbers: the json module with everything in memory, and pandas.read_json. All must
agree. CPU seconds stand beside seconds, as other work on the machine does not count in them.

    .venv/bin/python benchmarks/aggregate.py [--records N]      (5 minutes, 8 GB of memory, 2 of disk)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BASE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BASE / "scripts"), str(BASE)]

TOKENS_S_GPU, GPUS, ISL, HOUR_S = 2078, 16, 135_000, 3600
"""PR #2678 at concurrency 20; an answer's tokens are few beside its input."""
CHUNKS = 200
"""Chunks an answer: 7.3 s of decoding (published E2E - TTFT) at 36 ms a step; nobody published them."""
AGREED = ("total_tput_tok_s", "ttft_p50_ms", "kv_cache_usage_max_ratio")
MIB_IN_MB = 1.048576
RECORDS, SERIES = "profile_export.jsonl", "server_metrics_export.json"


class Cost(NamedTuple):
    """Of one process."""

    seconds: float
    cpu_s: float
    peak_mib: float
    said: Any
    """What it printed, from JSON."""


def row(replay: Path) -> object:
    """The point's row, as `summarise` makes it."""
    from serve_repro.table import rows

    made = rows.row(replay)
    return {name: made[name] for name in AGREED}


def gates(replay: Path) -> object:
    """What the gates look at, as `replay` collects it."""
    from serve_repro.gates.evidence import collect

    attempt = attempt_of(replay)
    return collect(attempt, 2, attempt / "patches").totals.completed


def picture(replay: Path) -> object:
    """The samples of a point's course, as `plot_point` reads them."""
    from serve_repro.client.series import read_series
    from serve_repro.draw import course

    found = read_series(attempt_of(replay) / "client/artifacts", course.WANTED)
    return {name: len(series.values) for name, series in found.items()}


def by_json(replay: Path) -> object:
    """All records and all samples in memory, by the json module."""
    import numpy as np

    artifacts = attempt_of(replay) / "client/artifacts"
    lines = (artifacts / RECORDS).read_text(encoding="utf-8").splitlines()
    kept = [each for line in lines if profiled(each := json.loads(line))]
    ttft = [each["metrics"]["time_to_first_token"]["value"] for each in kept]
    return three(kept, float(np.percentile(ttft, 50)), artifacts)


def by_pandas(replay: Path) -> object:
    """All records in a table, by pandas; the samples by the json module."""
    import pandas as pd

    artifacts = attempt_of(replay) / "client/artifacts"
    table = pd.read_json(artifacts / RECORDS, lines=True)
    kept = [each for each in table.to_dict("records") if profiled(each)]
    ttft = pd.Series([each["metrics"]["time_to_first_token"]["value"] for each in kept])
    return three(kept, float(ttft.median()), artifacts)


def attempt_of(replay: Path) -> Path:
    """The only attempt of a point."""
    (attempt,) = (replay.parent / "attempts").iterdir()
    return attempt


def profiled(each: dict[Any, Any]) -> bool:
    return bool(each["metadata"]["benchmark_phase"] == "profiling")


def three(kept: list[dict[Any, Any]], ttft_p50_ms: float, artifacts: Path) -> dict[str, float]:
    """The numbers that all must agree on."""
    tokens = sum(
        each["metrics"][f"usage_{kind}_tokens"]["value"]
        for each in kept
        for kind in ("prompt", "completion")
    )
    first = min(each["metadata"]["request_start_ns"] for each in kept)
    last = max(each["metadata"]["request_end_ns"] for each in kept)
    export = json.loads((artifacts / SERIES).read_text(encoding="utf-8"))
    usage = export["metrics"]["vllm:kv_cache_usage_perc"]["series"][0]["stats"]["max"]
    values = (tokens / ((last - first) / 1e9), ttft_p50_ms, usage)
    return {name: round(value, 5) for name, value in zip(AGREED, values, strict=True)}


READERS: dict[str, Callable[[Path], object]] = {
    "row": row,
    "gates": gates,
    "picture": picture,
    "json": by_json,
    "pandas": by_pandas,
}
OURS = ("row", "gates", "picture")
OTHERS = ("json", "pandas")


def cost(reader: str, replay: Path) -> Cost:
    """Run one reader as a process of its own."""
    began = time.perf_counter()
    words = [sys.executable, __file__, "--reader", reader, "--replay", str(replay)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{reader} ended with {process.returncode}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(time.perf_counter() - began, cpu_s, usage.ru_maxrss / 1024, json.loads(said))


def made(folder: Path, records: int, window_s: int) -> tuple[Path, float]:
    """As `make`, in another process: what this one holds would count as its children's peak."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(make, (folder, records, window_s))


def make(folder: Path, records: int, window_s: int) -> tuple[Path, float]:
    """A point with large artifacts: (its replay.json, MB of its artifacts)."""
    from benchmarks.made_artifacts import write_records, write_server_series
    from tests.unit.attempts import write_point

    replay, attempt = write_point(folder)
    artifacts = attempt / "client/artifacts"
    write_records(artifacts, records, window_s, CHUNKS)
    write_server_series(artifacts, window_s)
    sizes = {name: (artifacts / name).stat().st_size / 1e6 for name in (RECORDS, SERIES)}
    told = ", ".join(f"{name} {size:.0f} MB" for name, size in sizes.items())
    print(f"\n{records:,} records, {window_s} slices: {told}")
    return replay, sum(sizes.values())


def measure(replay: Path, readers: tuple[str, ...]) -> dict[str, Cost]:
    """Readers on one point; they must tell the same."""
    costs = {reader: cost(reader, replay) for reader in readers}
    said = [costs[reader].said for reader in ("row", *OTHERS) if reader in costs]
    if any(each != said[0] for each in said):
        raise SystemExit(f"readers disagree: {said}")
    for reader, found in costs.items():
        ratio = ""
        if reader in OTHERS:
            ratio = f"; against row: {found.cpu_s / costs['row'].cpu_s:.1f} x CPU"
            ratio += f", {found.peak_mib / costs['row'].peak_mib:.1f} x memory"
        print(
            f"  {reader:8} {found.seconds:6.1f} s, {found.cpu_s:6.1f} CPU-s, "
            f"peak {found.peak_mib:6.0f} MiB{ratio}",
            flush=True,
        )
    return costs


def main(harsh: int) -> None:
    """Print costs at each size, and how they grow."""
    records = round(TOKENS_S_GPU * GPUS * HOUR_S / ISL)
    print(
        f"One hour of {TOKENS_S_GPU:,} tokens/s/GPU on {GPUS} GPUs at {ISL:,} tokens a request: "
        f"{records} records. Harsher: {harsh:,} records an hour. {CHUNKS} chunks a record."
    )
    with tempfile.TemporaryDirectory(prefix="serve-repro-") as folder:
        small, _ = made(Path(folder) / "small", 40, 60)
        measure(small, (*OURS, *OTHERS))
        for count, twice_too in ((records, OTHERS), (harsh, ())):
            replay, size_mb = made(Path(folder) / f"{count}", count, HOUR_S)
            once = measure(replay, (*OURS, *OTHERS))
            replay, twice_mb = made(Path(folder) / f"{count}-twice", 2 * count, 2 * HOUR_S)
            twice = measure(replay, (*OURS, *twice_too))
            print(f"  from once to twice the size, {twice_mb - size_mb:.0f} MB more to read:")
            for reader, found in twice.items():
                more = found.peak_mib - once[reader].peak_mib
                share = more * MIB_IN_MB / (twice_mb - size_mb)
                print(
                    f"  {reader:8} {more:6.0f} MiB more memory ({share:.1%} of what is more to read), "
                    f"{found.cpu_s / once[reader].cpu_s:.2f} x CPU"
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--records", type=int, default=50_000, help="records an hour of the harsher size"
    )
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        print(json.dumps(READERS[arguments.reader](arguments.replay)))
    else:
        main(arguments.records)
