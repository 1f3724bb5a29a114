"""Look at this node: its GPUs, devices, limits, disks, and what ended attempts of ours have left.

The kernel's own files are read, so that no vendor's tool is needed:
https://docs.kernel.org/gpu/amdgpu/driver-misc.html (mem_info_vram_*), and the amdkfd driver's
/sys/class/kfd/kfd/topology/nodes/*/properties (a node with simd_count > 0 is a GPU) and
/sys/class/kfd/kfd/proc/<process id>/vram_<gpu id> (bytes).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from serve_repro.launch import containers, leftovers
from serve_repro.nodes.facts import Facts

HOLDER = "hold_rank.py"
MIN_AGE_S = 120.0
"""How old a process without a holder must be: one that is just ending ends by itself."""
KILL_S = 5.0


class Attempts(NamedTuple):
    """Attempts that somebody holds on this node now."""

    run_ids: set[str]
    complete: bool
    """Whether each holder's order could be read; if not, nobody can say what is left over."""


def look(needs: dict[str, Any], sysfs: Path = Path("/sys")) -> Facts:
    """Everything that the checks ask for, and the clean-up of what is ours and dead.

    Args:
        needs: {folders: whose free space counts, containers: the command that lists ours, or null}.
        sysfs: where the kernel's files are.
    """
    under_way = held_attempts()
    cleaned, left, ending = clean(under_way)
    return Facts(
        host=socket.gethostname(),
        gpus=gpus(sysfs),
        gpu_processes=gpu_processes(sysfs),
        vram=vram(sysfs),
        rdma=names(sysfs / "class/infiniband"),
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        free={folder: free_bytes(Path(folder)) for folder in needs["folders"]},
        cleaned=cleaned,
        left=left,
        ending=ending,
        containers=old_containers(needs["containers"], under_way),
    )


def names(folder: Path) -> list[str] | None:
    """What a folder holds, sorted; None if it is not there."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return None


def gpus(sysfs: Path) -> int | None:
    """GPUs of the KFD topology; its other nodes are processors."""
    topology = sysfs / "class/kfd/kfd/topology/nodes"
    found = names(topology)
    return None if found is None else sum(_simds(topology / name / "properties") > 0 for name in found)


def _simds(properties: Path) -> int:
    try:
        lines = properties.read_text(encoding="utf-8").splitlines()
    except OSError:  # a GPU that a cgroup hides from this user counts as none
        return 0
    pairs = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return int(pairs.get("simd_count", 0))


def gpu_processes(sysfs: Path) -> dict[str, int] | None:
    """Bytes of GPU memory by process, of those that hold any."""
    folder = sysfs / "class/kfd/kfd/proc"
    found = names(folder)
    if found is None:
        return None
    held = {pid: sum(_number(path) for path in (folder / pid).glob("vram_*")) for pid in found}
    return {pid: size for pid, size in held.items() if size}


def vram(sysfs: Path) -> list[tuple[int, int]] | None:
    """(used, total) bytes of each card that tells."""
    totals = sorted((sysfs / "class/drm").glob("card*/device/mem_info_vram_total"))
    found = [(_number(path.with_name("mem_info_vram_used")), _number(path)) for path in totals]
    return found or None


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # its process ended meanwhile
        return 0


def free_bytes(folder: Path) -> int:
    """Free bytes for this user where a folder is, or will be made."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def held_attempts() -> Attempts:
    """Attempts with a living holder on this node, by the orders that the holders were given."""
    run_ids: set[str] = set()
    complete = True
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            place = [number for number, word in enumerate(words) if Path(word).name == HOLDER]
            if place:
                order = Path(process.cwd()) / words[place[0] + 1]
                run_ids.add(json.loads(order.read_text(encoding="utf-8"))["run_id"])
        except psutil.NoSuchProcess:
            continue
        except (OSError, ValueError, KeyError, IndexError, psutil.Error):
            complete = False
    return Attempts(run_ids, complete)


def clean(under_way: Attempts) -> tuple[list[str], list[str], list[str]]:
    """End what is ours and has no holder any more: (cleaned, still there, too young to tell)."""
    orphans: dict[str, list[psutil.Process]] = {}
    ending: list[str] = []
    for process in psutil.process_iter():
        run_id = _own_mark(process)
        if run_id is None or run_id in under_way.run_ids:
            continue
        told = f"process {process.pid} of attempt {run_id}"
        if not under_way.complete or time.time() - process.create_time() < MIN_AGE_S:
            ending.append(told)
        else:
            orphans.setdefault(run_id, []).append(process)
    cleaned: list[str] = []
    left: list[str] = []
    for run_id, processes in orphans.items():
        memory = leftovers.shared_memory_of(processes)
        remaining = {process.pid for process in leftovers.kill(processes, KILL_S)}
        for process in processes:
            told = f"process {process.pid} of attempt {run_id}"
            (left if process.pid in remaining else cleaned).append(told)
        cleaned += [str(path) for path in leftovers.remove_shared_memory(memory)]
    return cleaned, left, ending


def _own_mark(process: psutil.Process) -> str | None:
    """The attempt that a living process of this user belongs to."""
    try:
        if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
            return None
        words = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except (OSError, psutil.Error):
        return None
    mark = f"{leftovers.RUN_ID}=".encode()
    return next((word[len(mark) :].decode() for word in words if word.startswith(mark)), None)


def old_containers(listing: list[str] | None, under_way: Attempts) -> list[str]:
    """Containers of ours that no attempt under way has started; they are told, not removed.

    A name does not say whose workflow started it, so its removal is a person's to decide.
    """
    if listing is None:
        return []
    found = containers.left(listing)
    return [told for told in found if not any(run_id in told for run_id in under_way.run_ids)]
