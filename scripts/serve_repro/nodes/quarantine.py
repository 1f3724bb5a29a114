"""Nodes that are kept out for a time: each with its reason, since when, and until when."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from serve_repro.documents import read_json, write_json
from serve_repro.errors import UserError

FOLDER = Path("resources/quarantine")
FOR = timedelta(hours=24)

Entries = dict[str, dict[str, str]]
"""{node: {reason, since, until}}; times in ISO format with their zone."""


def path_of(folder: Path, site: str) -> Path:
    """Where a site's list stands."""
    return folder / f"{site}.json"


def entries(path: Path, now: datetime) -> Entries:
    """The nodes that are kept out now; entries whose time is over do not count.

    Raises:
        UserError: the list is damaged.
    """
    if not path.is_file():
        return {}
    try:
        return {
            node: entry
            for node, entry in read_json(path).items()
            if datetime.fromisoformat(entry["until"]) > now
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"is no list of quarantined nodes: {error!r}", where=str(path), remedy=f"rm {path}"
        ) from error


def add(path: Path, reasons: dict[str, str], now: datetime) -> None:
    """Keep nodes out from now on, for `FOR`."""
    since, until = (time.isoformat(timespec="seconds") for time in (now, now + FOR))
    new = {node: {"reason": why, "since": since, "until": until} for node, why in reasons.items()}
    _change(path, now, lambda old: old | new)


def lift(path: Path, node: str, now: datetime) -> None:
    """Let a node in again.

    Raises:
        UserError: it is not kept out.
    """
    held = entries(path, now)
    if node not in held:
        raise UserError("is not in quarantine", where=f"node {node}", found=sorted(held) or "no node")
    _change(path, now, lambda old: {name: entry for name, entry in old.items() if name != node})


def refuse(path: Path, nodes: list[str], now: datetime) -> None:
    """Refuse nodes that are kept out.

    Raises:
        UserError: one of them is; says why, until when, and how to let it in.
    """
    held = entries(path, now)
    bad = [node for node in dict.fromkeys(nodes) if node in held]
    if bad:
        told = [f"{node}: {held[node]['reason']} (until {held[node]['until']})" for node in bad]
        raise UserError(
            "is in quarantine, so the point is not begun",
            where=f"node {', '.join(bad)}",
            found="; ".join(told),
            remedy=f"mend it, then: python scripts/quarantine.py lift {path.stem} {bad[0]}",
        )


def _change(path: Path, now: datetime, change: Callable[[Entries], Entries]) -> None:
    """Points on other nodes may write at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_json(path, change(entries(path, now)))
