"""What a look at a node means for a point: pure functions from facts and needs to checks."""

from __future__ import annotations

from typing import Literal, NamedTuple

from serve_repro.nodes.facts import Facts
from serve_repro.plan.model import NodeNeeds

MIB = 1 << 20
FREE_MIB = 512
"""What a disk and /dev/shm must have free, so that a point does not end on its first file."""
VRAM_SHARE = 0.05
"""Share of a GPU's memory that may be in use with nobody holding it: the driver's own, firmware."""
HARDWARE = frozenset({"gpus", "rdma"})
"""Checks whose failure a second try does not mend: they put a node into quarantine."""


class Check(NamedTuple):
    """What one check found on one node."""

    check: str
    outcome: Literal["pass", "fail", "unknown"]
    seen: str


def check_node(needs: NodeNeeds, facts: Facts) -> list[Check]:
    """Every check that applies to a node of this plan."""
    found = [_gpus(needs, facts), _idle(facts), _vram(facts)] if needs.gpus else []
    found += [_rdma(needs.rdma, facts)] if needs.rdma else []
    found += [_memlock(facts)] if needs.memlock else []
    return [*found, *_disks(facts), _ours(facts), *([_containers(facts)] if needs.containers else [])]


def _check(name: str, good: bool | None, seen: str) -> Check:
    return Check(name, "unknown" if good is None else "pass" if good else "fail", seen)


def _gpus(needs: NodeNeeds, facts: Facts) -> Check:
    """KFD is there on every node whose AMD driver is loaded; other makers' GPUs it cannot see."""
    if facts.gpus is None:
        amd = needs.accelerator.startswith("mi")
        return _check("gpus", False if amd else None, "the kernel lists none: it has no /sys/class/kfd")
    return _check("gpus", facts.gpus == needs.gpus, f"{facts.gpus} GPUs, the site says {needs.gpus}")


def _idle(facts: Facts) -> Check:
    if facts.gpu_processes is None:
        return _check("gpus_idle", None, "the kernel does not list processes on GPUs")
    told = [f"process {pid} holds {size // MIB} MiB" for pid, size in facts.gpu_processes.items()]
    return _check("gpus_idle", not told, "; ".join(told) or "no process holds GPU memory")


def _vram(facts: Facts) -> Check:
    if facts.vram is None:
        return _check("vram_free", None, "no card tells how much of its memory is in use")
    used = [(card, taken / total) for card, (taken, total) in enumerate(facts.vram) if total]
    card, share = max(used, key=lambda pair: pair[1], default=(0, 0.0))
    seen = f"of {len(used)} cards at most {share:.1%} in use (card {card})"
    return _check("vram_free", share <= VRAM_SHARE, seen)


def _rdma(wanted: str, facts: Facts) -> Check:
    """NCCL_IB_HCA: names that devices begin with, or after '=' equal; '^' leaves devices out.

    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca
    """
    if facts.rdma is None:
        return _check("rdma", False, "the kernel lists no RDMA device: it has no /sys/class/infiniband")
    listed = f"the node has {', '.join(facts.rdma) or 'none'}"
    if wanted.startswith("^"):
        return _check("rdma", bool(facts.rdma), listed)
    exact = wanted.startswith("=")
    names = [name.partition(":")[0].strip() for name in wanted.removeprefix("=").split(",")]
    missing = [
        name
        for name in names
        if not any(device == name if exact else device.startswith(name) for device in facts.rdma)
    ]
    return _check("rdma", not missing, f"missing {', '.join(missing)}; {listed}" if missing else listed)


def _memlock(facts: Facts) -> Check:
    unlimited = facts.memlock == -1
    seen = "no limit" if unlimited else f"{facts.memlock} bytes, the site asks for no limit"
    return _check("memlock", unlimited, seen)


def _disks(facts: Facts) -> list[Check]:
    return [
        _check("free_space", size >= FREE_MIB * MIB, f"{folder}: {size // MIB} MiB free")
        for folder, size in facts.free.items()
    ]


def _ours(facts: Facts) -> Check:
    if facts.left:
        return _check("leftovers", False, f"cannot be ended: {', '.join(facts.left)}")
    if facts.ending:
        return _check("leftovers", None, f"may be ending: {', '.join(facts.ending)}")
    return _check("leftovers", True, f"cleaned: {', '.join(facts.cleaned) or 'nothing was left'}")


def _containers(facts: Facts) -> Check:
    return _check("containers", not facts.containers, ", ".join(facts.containers) or "none of ours left")
