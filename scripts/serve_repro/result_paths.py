"""Where a point's result stands, and which point a file belongs to.

The first run of a point stands in results/<recipe>/conc<N>/, each further one in rep<k>/ below it: more
repeats add files and move none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

REPEAT = r"(/rep([2-9]|[1-9][0-9]+))?"
"""What the repeat is in a path, as a regular expression; empty for the first run."""


class Run(NamedTuple):
    """One run of one point: a server booted, measured and stopped."""

    recipe: str
    concurrency: int
    repeat: int
    """From 1."""


def replay_path(run: Run) -> str:
    """The file of a run's result."""
    repeat = f"/rep{run.repeat}" if run.repeat > 1 else ""
    return f"results/{run.recipe}/conc{run.concurrency}{repeat}/replay.json"


def repeat_of(replay: Path) -> int:
    """Which run of its point a result is of."""
    found = re.fullmatch(r"rep(\d+)", replay.parent.name)
    return int(found[1]) if found else 1


def run_of(replay: Path) -> Run:
    """The run that a result's path names."""
    repeat = repeat_of(replay)
    point = replay.parents[1] if repeat > 1 else replay.parent
    return Run(point.parent.name, int(point.name.removeprefix("conc")), repeat)
