"""Visit every node of a point before it starts: look at it, compare its clock, judge it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from serve_repro.launch.environment import clean_environment
from serve_repro.launch.slurm import slurm_environment
from serve_repro.nodes.checks import Check, check_node
from serve_repro.nodes.facts import facts_from
from serve_repro.plan.bindings import fill_all
from serve_repro.plan.model import NodeNeeds, Plan

PROBE = Path(__file__).parents[2] / "probe_node.py"
LIMIT_S = 30.0
"""Longest that a node may take to answer; Slurm's way to a node is part of it."""
PINGS = 3
FOLDERS = ("/tmp", "/dev/shm")  # noqa: S108 - looked at, not written
"""Where ranks have their scratch folders and share memory; the cache is the site's to name."""


class Clock(NamedTuple):
    """How a node's clock differs from the launcher's."""

    offset_s: float
    """Ahead of the launcher's, by half the round trip at most wrong."""
    round_trip_s: float


class Visit(NamedTuple):
    """What was found on one node."""

    node: str
    checks: list[Check]
    clock: Clock | None
    facts: dict[str, Any] | None

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "node": self.node,
            "checks": [check._asdict() for check in self.checks],
            "clock": None if self.clock is None else self.clock._asdict(),
            "facts": self.facts,
        }


class Look(NamedTuple):
    """What is looked for, and how the look gets to a node."""

    needs: NodeNeeds
    cache_root: str | None
    prefix: list[str]
    """Words that bring a command to ${NODE}."""
    environment: dict[str, str]
    """What these words need beside the clean environment."""


def visit_all(plan: Plan, nodes: list[str], values: Mapping[str, str]) -> list[Visit]:
    """Visit each node of a point once, the way its rank will be started there."""
    look = Look(plan.needs, plan.cache_root, plan.ranks[0].prefix, slurm_environment())
    return look_at_all(look, nodes, values)


def look_at_all(look: Look, nodes: list[str], values: Mapping[str, str]) -> list[Visit]:
    """Visit each node once, all at the same time."""
    different = list(dict.fromkeys(nodes))
    with ThreadPoolExecutor(len(different)) as pool:
        return list(pool.map(lambda node: visit(look, node, values), different))


def visit(look: Look, node: str, values: Mapping[str, str]) -> Visit:
    """Visit one node."""
    listing = look.needs.containers
    needs = {
        "folders": [*FOLDERS, *([look.cache_root] if look.cache_root else [])],
        "containers": listing and fill_all(listing.argv, values),
    }
    prefix = fill_all(look.prefix, {**values, "NODE": node})
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        try:
            probe = subprocess.Popen(
                [*prefix, sys.executable, str(PROBE), json.dumps(needs)],
                env=clean_environment() | look.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            return _unreachable(node, str(error))
        # srun hands a signal on to its step; a process here ends by it.
        timer = threading.Timer(LIMIT_S, probe.terminate)
        timer.start()
        try:
            assert probe.stdin is not None and probe.stdout is not None
            facts = facts_from(json.loads(probe.stdout.readline()))
            clock = measure_clock(probe.stdin, probe.stdout)
        except (OSError, ValueError, KeyError, TypeError):
            _end(probe)
            errors.seek(0)
            said = errors.read().strip().splitlines()[-1:] or ["it says nothing"]
            return _unreachable(node, f"no answer within {LIMIT_S:.0f} s: {said[0]}")
        finally:
            timer.cancel()
            _end(probe)
    return Visit(node, check_node(look.needs, facts), clock, facts._asdict())


def measure_clock(ask: IO[str], answer: IO[str]) -> Clock:
    """The offset by the quickest of a few round trips: the shorter it is, the less it can be wrong.

    Raises:
        OSError, ValueError: the node ends, or says something else.
    """
    clocks = []
    for _ in range(PINGS):
        sent, began = time.time(), time.monotonic()
        ask.write("\n")
        ask.flush()
        there = float(json.loads(answer.readline()))
        took = time.monotonic() - began
        clocks.append(Clock(round(there - (sent + took / 2), 6), round(took, 6)))
    return min(clocks, key=lambda clock: clock.round_trip_s)


def _unreachable(node: str, seen: str) -> Visit:
    return Visit(node, [Check("reachable", "fail", seen)], None, None)


def _end(probe: subprocess.Popen[str]) -> None:
    """A probe ends with its standard input."""
    assert probe.stdin is not None and probe.stdout is not None
    with suppress(BrokenPipeError):  # it has ended
        probe.stdin.close()
    try:
        probe.wait(5)
    except subprocess.TimeoutExpired:
        probe.kill()
        probe.wait()
    probe.stdout.close()
