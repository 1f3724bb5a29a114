"""What the client's log says of its phases: the only place that tells of requests it gave up.

A request that is under way when the drain ends is cancelled, and stands in no record.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_SENT = re.compile(r"Phase \S+ \((\w+)\) sending complete \| sent=([\d,]+)")
_COMPLETE = re.compile(r"Phase \S+ \((\w+)\) complete \| completed=([\d,]+), cancelled=([\d,]+)")


class Phase(NamedTuple):
    """One phase's requests."""

    sent: int | None = None
    completed: int | None = None
    """Answered, or failed."""
    cancelled: int | None = None
    """Given up at the end of the drain."""


def read_phases(log: Path) -> dict[str, Phase]:
    """{warmup, profiling: what the log says of it}, for phases that it says anything of."""
    phases: dict[str, Phase] = {}
    with log.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if match := _SENT.search(line):
                name, sent = match[1], _number(match[2])
                phases[name] = phases.get(name, Phase())._replace(sent=sent)
            elif match := _COMPLETE.search(line):
                completed, cancelled = _number(match[2]), _number(match[3])
                phases[match[1]] = phases.get(match[1], Phase())._replace(
                    completed=completed, cancelled=cancelled
                )
    return phases


def _number(text: str) -> int:
    return int(text.replace(",", ""))
