"""Which nodes a recipe's whole sweep uses, where the site does not name them: choice and record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.documents import digest, read_json
from serve_repro.driver import CONSTANTS
from serve_repro.errors import UserError
from serve_repro.nodes.partition import Listed
from serve_repro.nodes.quarantine import Entries
from serve_repro.nodes.visit import Clock, Visit
from serve_repro.plan.model import Plan
from serve_repro.recipe.site import Site

FREE = "idle"
"""The one state in which Slurm gives a whole node at once. Others are not waited for."""


class Choice(NamedTuple):
    """The outcome, with a word on every node of the partition."""

    nodes: list[str]
    candidates: list[dict[str, str]]
    """{node, outcome: taken | not taken, why}, in the order of names."""
    visits: list[Visit]


def record_path(recipe: str) -> Path:
    """Where a recipe's choice is recorded."""
    return Path("results") / recipe / "nodes.json"


def request(plan: Plan, site: Site) -> dict[str, Any]:
    """All of site and recipe that a choice depends on: if it changes, nodes are chosen anew."""
    assert site.slurm is not None  # a site that names neither nodes nor a partition is refused
    return {
        "site": site.name,
        "partition": site.slurm.partition,
        "gres": site.slurm.gres,
        "count": len(plan.ranks),
        "excludes": sorted(entry.node for entry in site.excludes),
        "needs": plan.needs.model_dump(mode="json"),
        "cache_root": plan.cache_root,
    }


def choose(
    listed: list[Listed],
    count: int,
    out: Mapping[str, str],
    look: Callable[[list[str]], list[Visit]],
) -> Choice:
    """Take the first nodes, by name, that are free, not kept out, and fit.

    Args:
        listed: the partition's nodes.
        count: how many are needed.
        out: {node: why it must not be taken}.
        look: visits nodes; asked for no more of them than are still needed.

    Raises:
        UserError: too few are; says of each node why not.
    """
    refused = {entry.node: why for entry in listed if (why := out.get(entry.node) or _busy(entry))}
    waiting = [entry.node for entry in listed if entry.node not in refused]
    taken: list[Visit] = []
    visits: list[Visit] = []
    while waiting and len(taken) < count:
        now, waiting = waiting[: count - len(taken)], waiting[count - len(taken) :]
        for visit in look(now):
            visits.append(visit)
            why = _unfit(visit) or _apart(visit, taken)
            if why:
                refused[visit.node] = why
            else:
                taken.append(visit)
    if len(taken) < count:
        fit = [f"{visit.node}: fit" for visit in taken]
        raise UserError(
            "the partition has fewer nodes to choose than the server has ranks",
            where=f"nodes {listed[0].node} to {listed[-1].node}",
            expected=f"{count} that are idle, not kept out, and fit",
            found="\n            ".join(
                fit + [f"{node}: {why}" for node, why in sorted(refused.items())]
            ),
            remedy="wait, mend a node, or let one in again (scripts/quarantine.py, the site's excludes)",
        )
    names = [visit.node for visit in taken]
    candidates = [
        {"node": entry.node, "outcome": "taken", "why": "the first that were free and fit"}
        if entry.node in names
        else {
            "node": entry.node,
            "outcome": "not taken",
            "why": refused.get(entry.node, "not needed, so not looked at"),
        }
        for entry in listed
    ]
    return Choice(names, candidates, visits)


def _busy(entry: Listed) -> str | None:
    if entry.state == FREE:
        return None
    return f"Slurm says {entry.state}" + (f": {entry.reason}" if entry.reason else "")


def _unfit(visit: Visit) -> str | None:
    failed = [f"{check.check}: {check.seen}" for check in visit.checks if check.outcome == "fail"]
    return "; ".join(failed) or None


def _apart(visit: Visit, taken: list[Visit]) -> str | None:
    """Clocks that surely differ by more than a point's gate lets pass."""
    for other in taken:
        if visit.clock is None or other.clock is None:
            continue
        skew = abs(visit.clock.offset_s - other.clock.offset_s)
        if skew - _unsure(visit.clock) - _unsure(other.clock) > CONSTANTS.clock_skew_s:
            return f"its clock differs from that of {other.node} by {skew:.1f} s"
    return None


def _unsure(clock: Clock) -> float:
    return clock.round_trip_s / 2


def document(choice: Choice, asked: dict[str, Any], instead_of: list[str]) -> dict[str, Any]:
    """The record."""
    return {
        "nodes": choice.nodes,
        "candidates": choice.candidates,
        "instead_of": instead_of,
        "request": asked,
        "visits": [visit.document() for visit in choice.visits],
    }


def read_record(path: Path) -> dict[str, Any] | None:
    """The choice on record; None if there is none.

    Raises:
        UserError: the file is damaged.
    """
    if not path.is_file():
        return None
    record = read_json(path)
    lists = ("nodes", "instead_of")
    good = isinstance(record, dict) and all(isinstance(record.get(key), list) for key in lists)
    if not good or not record["nodes"] or "request" not in record:
        raise UserError(
            "is no record of chosen nodes", where=str(path), remedy=f"choose again: rm {path}"
        )
    return dict(record)


def instead_of(record: dict[str, Any] | None, asked: dict[str, Any], kept_out: Entries) -> list[str]:
    """Nodes of the choice on record that may serve no longer, with their end; they make it stale.

    Once the choice has been made anew, the record itself says the same, and is stale no more.
    """
    if record is None or digest(record["request"]) != digest(asked):
        return []
    gone = [f"{node} until {kept_out[node]['until']}" for node in record["nodes"] if node in kept_out]
    return gone or list(record["instead_of"])
