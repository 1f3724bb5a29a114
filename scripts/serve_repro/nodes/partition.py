"""The nodes of a Slurm partition, and the words that bring a command to one of them for a short look."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import NamedTuple

from serve_repro.errors import UserError
from serve_repro.launch.slurm import ask

_CLIENT_NEEDS = ("SLURM_CONF", "SLURM_CLUSTER_NAME")
_FORMAT = "%N|%R|%T|%E"
"""Name, partition, state, and why it is in that state: https://slurm.schedmd.com/sinfo.html."""
WAIT_S = 20
"""How long Slurm may take to give an idle node for a look."""


class Listed(NamedTuple):
    """A node as sinfo lists it."""

    node: str
    state: str
    """Slurm's word, with its mark (idle, idle*, mixed, drained); '*': it does not answer."""
    reason: str
    """What whoever set that state wrote; empty if nothing."""


def nodes_of(partition: str) -> list[Listed]:
    """The nodes of a partition, in the order of their names.

    Raises:
        UserError: no Slurm here, or no such partition; names those that there are.
    """
    if shutil.which("sinfo") is None:
        raise UserError(
            "nodes cannot be chosen: there is no sinfo on the PATH",
            where=f"partition {partition}",
            expected="Slurm's commands",
            remedy="run Snakemake on a login node, or name the nodes in the site's file",
        )
    # Of all partitions: asked for one that does not exist, sinfo answers nothing and calls it success.
    return parse(ask(["sinfo", "--noheader", "--all", "--Node", "--format", _FORMAT]), partition)


def parse(answer: str, partition: str) -> list[Listed]:
    """The lines of sinfo's answer that are about a partition; see `nodes_of` for the error."""
    rows = [line.split("|", 3) for line in answer.splitlines()]
    found = {
        row[0]: Listed(row[0], row[2], "" if row[3] == "none" else row[3])
        for row in rows
        if row[1] == partition
    }
    if not found:
        raise UserError(
            "Slurm has no such partition, or no node in it",
            where=f"slurm.partition: {partition}",
            expected=f"one of {sorted({row[1] for row in rows})}",
        )
    return [found[node] for node in sorted(found)]


def expand(lists: Iterable[str]) -> set[str]:
    """The names that Slurm's lists of hosts (n[01-04,7]) stand for.

    Raises:
        UserError: Slurm does not answer.
    """
    text = ",".join(lists)
    return set(ask(["scontrol", "show", "hostnames", text]).split()) if text else set()


def look_prefix(partition: str, account: str | None, gres: str | None) -> list[str]:
    """Words that ask Slurm for ${NODE}, whole, for a few minutes: the way a point will have it."""
    return [
        *("srun", "--exclusive", "--nodes=1", "--ntasks=1", "--nodelist=${NODE}"),
        *("--quiet", "--job-name=select_nodes", "--time=5", f"--immediate={WAIT_S}"),
        f"--partition={partition}",
        *([f"--account={account}"] if account else []),
        *([f"--gres={gres}"] if gres else []),
    ]


def client_environment() -> dict[str, str]:
    """What srun needs for a job of its own: not the job that this process may run in."""
    return {name: os.environ[name] for name in _CLIENT_NEEDS if name in os.environ}
