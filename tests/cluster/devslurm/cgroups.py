"""A part of the machine's cgroup v1 hierarchies for each node, as if it were the whole.

A node's processes enter their part and then a cgroup namespace, so Slurm's own folders (always
named after the node) of two clusters never meet.
"""

from __future__ import annotations

import time
from pathlib import Path

from devslurm.errors import ClusterError
from devslurm.host_boot import CGROUP_ROOT
from devslurm.spec import Ports

CONTROLLERS = ("freezer", "memory", "cpuset", "devices", "cpuacct")
_ENTER = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'


def _parts(ports: Ports) -> list[Path]:
    """Return the cluster's folder in each hierarchy; its port makes the name unique."""
    return [CGROUP_ROOT / name / f"devslurm-{ports.controller}" for name in CONTROLLERS]


def require() -> None:
    """Raise ClusterError if this machine has no cgroup v1 hierarchies to write to."""
    missing = [name for name in CONTROLLERS if not (CGROUP_ROOT / name / "cgroup.procs").exists()]
    if missing:
        raise ClusterError(
            f"cgroup mode needs cgroup v1 at {CGROUP_ROOT}; not mounted there: "
            f"{', '.join(missing)}. Start without it, out-of-memory kills are then polled"
        )


def create(ports: Ports, node: str) -> list[Path]:
    """Make the node's folder in each hierarchy and return them."""
    folders = [part / node for part in _parts(ports)]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "cpuset.cpus").exists():
            # A new cpuset is empty and takes no process before it has CPUs and memory.
            for level in (folder.parent, folder):
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (level / name).write_text((level.parent / name).read_text())
    return folders


def enter(folders: list[Path]) -> list[str]:
    """Return the words that, before a command, start it in `folders` and see only them."""
    return ["sh", "-c", _ENTER, "sh", *map(str, folders), "--", "unshare", "--cgroup", "--"]


def remove(ports: Ports, timeout_s: float = 5) -> None:
    """Remove the cluster's folders; raise ClusterError if they stay busy for `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    for part in _parts(ports):
        while part.exists():
            try:
                for folder in sorted((p for p in part.rglob("*") if p.is_dir()), reverse=True):
                    folder.rmdir()
                part.rmdir()
            except OSError as error:
                # The kernel empties a cgroup a moment after its last process has died.
                if time.monotonic() > deadline:
                    raise ClusterError(f"cannot remove cgroup {part}: {error}") from None
                time.sleep(0.05)
