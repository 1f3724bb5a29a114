"""Look into another checkout: where its results are, and whether a point there may be taken."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.documents import read_json
from serve_repro.errors import UserError
from serve_repro.last_attempt import newest
from serve_repro.nodes import quarantine
from serve_repro.result_paths import Run, replay_path

RESULTS = "results"


class Found(NamedTuple):
    """One point of another checkout."""

    replay: Path
    point: dict[str, Any]
    """Its replay.json; empty if it may not be taken."""
    refusal: str
    """Why it may not; empty if it may."""


def results_of(reuse: str) -> Path:
    """The results folder of another checkout, which may be named itself.

    Raises:
        UserError: no such folder, none with results, or this checkout's own.
    """
    where, folder = f"config: reuse: {reuse}", Path(reuse).expanduser()
    if not folder.is_dir():
        raise UserError(
            "no such folder", where=where, expected="another checkout, or its results folder"
        )
    results = folder / RESULTS if (folder / RESULTS).is_dir() else folder
    if results.resolve() == Path(RESULTS).resolve():
        raise UserError("these are this checkout's own results", where=where)
    if not any(results.glob("*/conc*/")):
        raise UserError("holds no points", where=where, expected=f"{RESULTS}/<recipe>/conc<N>/")
    return results


def look(results: Path, run: Run, now: datetime) -> Found:
    """One point of another checkout, and whether it stands as a whole valid result there."""
    replay = results.joinpath(*Path(replay_path(run)).parts[1:])
    if not replay.is_file():
        return Found(replay, {}, f"there is no valid point ({_last_status(replay)})")
    try:
        point = read_json(replay)
        refusal = _refusal(point, replay, run) or _quarantined(point, results, now)
    except (UserError, KeyError, TypeError, AttributeError) as error:
        return Found(replay, {}, f"its replay.json is damaged or of another version: {error!r}")
    return Found(replay, {} if refusal else point, refusal)


def name_of(results: Path) -> str:
    """What another checkout is called: its folder's name, never the whole path."""
    folder = results.resolve()
    return folder.parent.name if folder.name == RESULTS else folder.name


def _refusal(point: dict[str, Any], replay: Path, run: Run) -> str:
    if (point["recipe"], point["concurrency"]) != (run.recipe, run.concurrency):
        return f"it is of another point: {point['recipe']} at concurrency {point['concurrency']}"
    passed = [gate["outcome"] == "pass" for gate in point["gates"]]
    if point["status"] != "valid" or not passed or not all(passed):
        return f"it is not valid: {point['status']}, {passed.count(True)} of {len(passed)} gates passed"
    if not point.get("evidence") or "patch_set" not in point:
        return "it was measured by an earlier version, which kept no hashes of its evidence"
    attempt = replay.parent / point["attempt"]
    lost = [name for name in point["evidence"] if not (attempt / name).is_file()]
    return f"its evidence is not whole: {len(lost)} files are missing, {lost[0]} first" if lost else ""


def _quarantined(point: dict[str, Any], results: Path, now: datetime) -> str:
    # A list stands beside the results folder of a checkout; there is none where only that was copied.
    lists = [quarantine.FOLDER, results.parent / quarantine.FOLDER]
    held = {
        node: entry["reason"]
        for folder in lists
        for node, entry in quarantine.entries(quarantine.path_of(folder, point["site"]), now).items()
    }
    bad = [f"{node} ({held[node]})" for node in dict.fromkeys(point["nodes"]) if node in held]
    return f"it was measured on nodes that are in quarantine now: {', '.join(bad)}" if bad else ""


def _last_status(replay: Path) -> str:
    """What became of the newest attempt at a point without a result."""
    attempt = newest(replay)
    if attempt is None:
        return "not measured"
    try:
        told = read_json(attempt / "point.json")
        return f"last attempt {told['status']}"
    except (UserError, KeyError, TypeError):
        return "last attempt unfinished"
