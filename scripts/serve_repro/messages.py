"""What the workflow says at its end."""

from __future__ import annotations

import csv
from pathlib import Path

from serve_repro.last_attempt import newest, said

_COLUMNS = (
    ("recipe", "recipe"),
    ("concurrency", "conc"),
    ("repeat", "run"),
    ("status", "status"),
    ("validity", "class"),
    ("requests", "requests"),
    ("total_tput_tok_s_gpu", "total tok/s/GPU"),
    ("interactivity_p50_tok_s_user", "tok/s/user p50"),
    ("ttft_p50_ms", "TTFT p50 ms"),
    ("itl_p50_ms", "ITL p50 ms"),
)


def made_what(points: list[str], evals: list[str]) -> str:
    """The table in short, what became of the evaluations, and where everything lies.

    Args:
        points: the points' replay.json.
        evals: the evaluations' eval.json; empty if this run has none.
    """
    summary = Path("results/summary.csv")
    if not summary.is_file():
        return ""
    with summary.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    repeated = any(row["repeat"] != "1" for row in rows)
    shown = [pair for pair in _COLUMNS if pair[0] != "repeat" or repeated]
    table = [[heading for _, heading in shown]]
    table += [[_short(row[column]) for column, _ in shown] for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(shown))]
    lines = ["  ".join(map(str.ljust, line, widths)) for line in table]
    held = [float(row["held_idle_s"]) for row in rows if row.get("held_idle_s")]
    if held:
        told = f"{sum(held):.1f} s in {len(held)} points"
        lines += ["", f"nodes held before their server was started: {told}"]
    if evals:
        lines += ["", f"accuracy: {_accuracy(Path('results/evals.csv'), evals)}"]
    made = [
        ("table, one row a point", "results/summary.csv"),
        ("plot", "results/plots/throughput_against_interactivity.png"),
        ("each published value, and what became of it", "results/verdict.csv"),
        ("report to read or print", "results/report.html"),
        ("the points and their evidence", str(Path(points[0]).parents[1])),
    ]
    if evals:
        made.insert(3, ("accuracy, one row an evaluation", "results/evals.csv"))
    lines += ["", *(f"{path:<52} {what}" for what, path in made if Path(path).exists())]
    return "\n".join(["", *lines])


def what_failed(points: list[str], evals: list[str]) -> str:
    """The last attempt of each point and evaluation that has no result, with its reason."""
    lines = ["", "Finished points are kept; the next run goes on from them."]
    for point in map(Path, [*points, *evals]):
        attempt = newest(point)
        if not point.is_file() and attempt is not None:
            last = said(attempt)
            # A valid last attempt is an older one: this time it ended before an attempt began.
            if last["status"] != "valid":
                lines.append(f"{point.parent}: {last['status']}: {last['reason']}")
                lines.append(f"  evidence: {attempt}")
    lines.append("All points with status and reason: results/summary.partial.csv")
    return "\n".join(lines)


def _accuracy(table: Path, evals: list[str]) -> str:
    """One line of evals.csv, which a run for the summary alone does not make."""
    if not table.is_file():
        return "not evaluated in this run"
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if sorted(row["recipe"] for row in rows) != sorted(Path(done).parts[1] for done in evals):
        return "not evaluated in this run; results/evals.csv is of another"
    failed = [row for row in rows if row["outcome"] != "passed"]
    told = f"{len(rows) - len(failed)} of {len(rows)} evaluations passed"
    return "; ".join([told, *(f"{row['recipe']} {row['task']}: {row['reason']}" for row in failed)])


def _short(text: str) -> str:
    try:
        return f"{float(text):,.1f}" if "." in text else text
    except ValueError:
        return text
