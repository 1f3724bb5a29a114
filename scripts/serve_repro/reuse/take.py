"""Take one point: compare all identities, copy its evidence, hold every byte against its hash."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.documents import file_sha256, read_json, write_json
from serve_repro.errors import UserError
from serve_repro.result_paths import Run
from serve_repro.reuse.identity import Identities, differences, identities_of, unknown
from serve_repro.reuse.source import look, name_of

KEPT = "reused.json"
"""The result as it was taken, beside attempts/: it can be held against its evidence again later."""


class Wanted(NamedTuple):
    """The point that a result is wanted of."""

    run: Run
    here: Identities
    """Its identities here, all of them known."""
    declared: str
    """Digest of what people wrote here that the identities follow from."""


def take(wanted: Wanted, results: Path | None, folder: Path, now: datetime) -> dict[str, Any]:
    """Copy a point's evidence to `folder`, unless it was before; returns what its replay.json holds.

    Args:
        wanted: the point.
        results: the other checkout's results; None: only what was taken before.
        folder: the point's folder here.
        now: for the list of quarantined nodes.

    Raises:
        UserError: the point may not be taken, with each identity that differs, or the file that is not
            what its hash says.
    """
    before = _before(wanted, folder)
    if before:
        attempt = folder / before["attempt"]
        check_evidence(attempt, before, f"rm -r {attempt}, and run again")
        return _recorded(wanted, before, before["reused"]["from"], before["reused"]["replay"])
    if results is None:
        raise _refused(wanted, "no other checkout is named, and it was not reused before")
    found = look(results, wanted.run, now)
    if found.refusal:
        raise _refused(wanted, found.refusal)
    _require_same(wanted, found.point)
    _copy(found.replay.parent / found.point["attempt"], found.point, folder)
    point = _recorded(wanted, found.point, name_of(results), f"sha256:{file_sha256(found.replay)}")
    write_json(folder / KEPT, point)
    return point


def check_evidence(attempt: Path, point: dict[str, Any], remedy: str) -> None:
    """Every file that the point was judged by is there with its bytes; further files do not count.

    Raises:
        UserError: the first file that is missing or has other bytes.
    """
    for name, expected in point["evidence"].items():
        path = attempt / name
        found = file_sha256(path) if path.is_file() else None
        if found != expected:
            raise UserError(
                "the evidence is not what the point was judged by",
                where=str(path),
                expected=f"sha256 {expected}",
                found=f"sha256 {found}" if found else "no file",
                remedy=remedy,
            )


def _before(wanted: Wanted, folder: Path) -> dict[str, Any]:
    """What was taken before, if it is still the wanted measurement and its evidence is still here."""
    if not (folder / KEPT).is_file():
        return {}
    point: dict[str, Any] = read_json(folder / KEPT)
    here = (folder / point["attempt"]).is_dir()
    return point if here and not differences(wanted.here, identities_of(point)) else {}


def _copy(attempt: Path, point: dict[str, Any], folder: Path) -> None:
    """All files of the evidence or none: they are checked, then copied, and the copies are checked."""
    target = folder / point["attempt"]
    if target.exists():
        check_evidence(target, point, f"rm -r {target}, and run again")
        return
    check_evidence(attempt, point, "measure the point here: run without the setting reuse")
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        for name in point["evidence"]:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(attempt / name, part / name)
        check_evidence(part, point, "the copy failed: look at this disk, and run again")
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _recorded(wanted: Wanted, point: dict[str, Any], name: str, replay: str) -> dict[str, Any]:
    reused = {"from": name, "replay": replay, "declared": wanted.declared}
    return point | {"reused": reused}


def _require_same(wanted: Wanted, point: dict[str, Any]) -> None:
    open_yet = [f"{name}: not proven here" for name in unknown(wanted.here)]
    differing = open_yet + differences(wanted.here, identities_of(point))
    if differing:
        raise _refused(wanted, "; ".join(differing))


def _refused(wanted: Wanted, why: str) -> UserError:
    run = wanted.run
    return UserError(
        f"this point cannot be reused: {why}",
        where=f"{run.recipe} at concurrency {run.concurrency}, run {run.repeat}",
        remedy="run the same command again: now that this is known, the point is measured",
    )
