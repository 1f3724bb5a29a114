"""An offline hub cache for the client, made of links: the verified tokenizer, and fetched traces.

The client loads a tokenizer by hub id even when it is told to stay offline, and refuses a plain
folder then. So it gets what it looks for, and every byte of it is one that was verified.
"""

from __future__ import annotations

from pathlib import Path

REVISION = "0" * 40
"""Name of the one snapshot: whatever its commit is, its bytes are the receipt's."""


def prepare(hub: Path, model_id: str, weights: Path, traces: Path | None) -> None:
    """Make the cache.

    Args:
        hub: the new cache folder (HF_HUB_CACHE).
        model_id: hub id under which the tokenizer is asked for.
        weights: the model's verified folder.
        traces: a hub cache that holds fetched traces; None if they come from a plain folder.
    """
    model = hub / f"models--{model_id.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "snapshots").mkdir()
    (model / "refs" / "main").write_text(REVISION, encoding="utf-8")
    (model / "snapshots" / REVISION).symlink_to(weights.absolute())
    for dataset in traces.glob("datasets--*") if traces else []:
        (hub / dataset.name).symlink_to(dataset.absolute())
