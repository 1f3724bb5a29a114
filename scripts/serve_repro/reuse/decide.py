"""Decide for each point whether it is taken from another checkout, before anything is started."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.documents import read_json
from serve_repro.errors import UserError
from serve_repro.result_paths import Run, replay_path
from serve_repro.reuse.identity import Identities, differences, identities_of, unknown
from serve_repro.reuse.source import look


class Decision(NamedTuple):
    """What is done about one point."""

    taken: bool
    """Whether rule reuse_point makes it, and not rule replay."""
    told: str
    """One line for people; empty where nothing was asked for."""


def decide(run: Run, here: Identities, declared: str, results: Path | None, now: datetime) -> Decision:
    """Take a point if another checkout has it, whole and of the same identities; else measure it.

    A point that was taken before stays taken while what is declared here is what it was taken for: the
    other checkout need not be named again.

    Args:
        run: the point.
        here: its identities here, as far as they are known.
        declared: digest of all that people wrote here that the identities follow from.
        results: the other checkout's results; None: none is named.
        now: for the list of quarantined nodes.
    """
    point = f"{run.recipe} at concurrency {run.concurrency}, run {run.repeat}"
    own = _own(Path(replay_path(run)))
    same = bool(own) and not _differences(here, own)
    if same and own.get("reused", {}).get("declared") == declared:
        return Decision(True, f"{point}: was reused before" if results else "")
    if results is None:
        return Decision(False, "")
    if same and "reused" not in own:
        return Decision(False, f"{point}: not reused: it is measured here already")
    found = look(results, run, now)
    if found.refusal:
        return Decision(False, f"{point}: not reused: {found.refusal}")
    differing = _differences(here, found.point)
    if differing:
        return Decision(False, f"{point}: not reused: {'; '.join(differing)}")
    open_yet = unknown(here)
    later = f" (if {', '.join(open_yet)} turn out equal, too)" if open_yet else ""
    return Decision(True, f"{point}: reused from {found.replay}{later}")


def _own(replay: Path) -> dict[str, Any]:
    """The point's result here, valid by construction; empty if there is none that can be read."""
    try:
        point = read_json(replay)
    except UserError:
        return {}
    return point if isinstance(point, dict) else {}


def _differences(here: Identities, point: dict[str, Any]) -> list[str]:
    try:
        return differences(here, identities_of(point))
    except (KeyError, TypeError):
        return ["its identities cannot be read"]
