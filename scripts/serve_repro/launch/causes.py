"""Known causes: what a line of a rank's log means, and what helps."""

from __future__ import annotations

import re
from pathlib import Path

KNOWN = [
    (r"^serve-repro: cannot be started", "its command cannot be started"),
    (
        r"Cannot connect to the Docker daemon|error during connect|failed to connect to the docker API",
        "the node's Docker daemon does not answer",
    ),
    (r"permission denied .* Docker (daemon|API)", "this user may not use the node's Docker daemon"),
    (
        r"[Nn]o such image|image not known|No such file or directory.*\.(sif|sqsh)",
        "the node does not have the image any more",
    ),
    (r"invalid mount config|statfs .*: no such file", "a folder to mount is not on the node"),
    (r"error gathering device information|stat /dev/.*: no such file", "a device is not on the node"),
    (r"[Aa]ddress already in use|EADDRINUSE", "the port was taken by another process"),
    (r"No space left on device", "a disk or /dev/shm is full"),
    (
        r"HSA_STATUS_ERROR_OUT_OF_RESOURCES|HIP out of memory|CUDA out of memory",
        "GPU memory ran out",
    ),
    (
        r"Memory access fault by GPU|HSA_STATUS_ERROR_EXCEPTION",
        "a GPU kernel touched foreign memory",
    ),
    (r"Cannot allocate memory|MemoryError", "host memory ran out"),
    (r"oom.kill event|OOM Killed", "Slurm killed it: the job's host memory ran out"),
    (r"serve_repro_hooks: .* is not installed", "a patch refused to install"),
    (
        r"DistStoreError|Timed out after .* waiting for clients",
        "a rank did not join the rendezvous",
    ),
    (r"index \d+ is out of bounds", "a KV block id beyond a stage's buffer (block-count mismatch)"),
    (r"unrecognized arguments|error: argument", "vLLM does not know a flag of the recipe"),
    (r"Free memory on device .* is less than desired", "another process holds GPU memory"),
]
"""(pattern, meaning), tried in this order."""

TAIL_BYTES = 256 * 1024


def tail(path: Path, lines: int) -> str:
    """The last lines of a log; empty if there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def known_cause(log: Path) -> str | None:
    """What the end of a log says about the cause, if it is one that is known."""
    text = tail(log, 2000)
    for pattern, meaning in KNOWN:
        if re.search(pattern, text, re.MULTILINE):
            return meaning
    return None
