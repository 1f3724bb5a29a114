"""What ranks say about their patches: one line a patch and process, written from inside of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from serve_repro.documents import read_json


def read_attestations(path: Path) -> list[dict[str, Any]]:
    """All lines of one rank, empty if it wrote none. A line cut short counts as not written."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines


def wanted(folder: Path) -> list[dict[str, Any]]:
    """{id, processes} of each patch that ranks must tell of: hooks, and what lies over the image.

    Args:
        folder: a built patch set.
    """
    hooks: list[dict[str, Any]] = read_json(folder / "set.json")["hooks"]
    return [*hooks, *read_json(folder / "overlay.json")["patches"]]


def missing(
    attested: list[list[dict[str, Any]]], hooks: list[dict[str, Any]], workers: int
) -> list[str]:
    """What is not proven, as sentences; empty if every hook is where it must be.

    Args:
        attested: one list of lines a rank, by rank.
        hooks: the set's patches: {id, processes}. Every rank has workers; only rank 0 has an
            engine and an API.
        workers: how many workers each rank has: all of them must have said so.
    """
    told = []
    for rank, lines in enumerate(attested):
        for hook in hooks:
            of_hook = [line for line in lines if line["patch"] == hook["id"]]
            refused = [line["reason"] for line in of_hook if not line["installed"]]
            if refused:
                told.append(f"rank {rank}: {hook['id']} refused: {refused[0]}")
                continue
            wanted = [kind for kind in hook["processes"] if kind == "worker" or rank == 0]
            for kind in wanted:
                pids = {line["pid"] for line in of_hook if line["process"] == kind}
                needed = workers if kind == "worker" else 1
                if len(pids) < needed:
                    told.append(f"rank {rank}: {len(pids)} of {needed} {kind} reported {hook['id']}")
    return told
