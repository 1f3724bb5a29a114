"""What can be seen on one node, as data that travels between programs."""

from __future__ import annotations

from typing import Any, NamedTuple


class Facts(NamedTuple):
    """One look at a node. None: it could not be seen."""

    host: str
    gpus: int | None
    """GPUs that the kernel's driver (KFD) lists."""
    gpu_processes: dict[str, int] | None
    """{process id: bytes of GPU memory that it holds}."""
    vram: list[tuple[int, int]] | None
    """(used, total) bytes of GPU memory, by GPU."""
    rdma: list[str] | None
    """Names of RDMA devices."""
    memlock: int
    """Bytes that a process may lock (soft limit); -1: no limit."""
    free: dict[str, int]
    """{folder: free bytes of the disk that it is or would be on}."""
    cleaned: list[str]
    """Processes of ended attempts of ours that were killed, and their shared memory."""
    left: list[str]
    """Such processes that are still there."""
    ending: list[str]
    """Processes of ours without a holder, too young to be called left over."""
    containers: list[str]
    """Containers of ours that belong to no attempt under way, or why that cannot be told."""


def facts_from(document: dict[str, Any]) -> Facts:
    """Facts as they came over a pipe.

    Raises:
        KeyError, TypeError: it is no such document.
    """
    vram = document["vram"]
    pairs = None if vram is None else [(int(used), int(total)) for used, total in vram]
    return Facts(**(document | {"vram": pairs}))
