"""Find a model's folder under the site's roots: a plain folder, or Hugging Face's hub layout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from serve_repro.errors import UserError
from serve_repro.recipe.recipe import ModelSource


class Found(NamedTuple):
    """Where a model is."""

    folder: Path
    layout: str
    revision: str | None
    """The hub commit, where the layout tells it."""

    @property
    def mount(self) -> Path:
        """What a container must see: the hub layout's files are links that lead to its blobs."""
        return self.folder.parents[1] if self.layout == "hub" else self.folder


def seen_at(model: Mapping[str, Any], target: str) -> str:
    """Where a model's folder is when its `mount` is seen at `target`, as a container sees it.

    Args:
        model: a model's entry of a manifest or of a receipt.
        target: the mount's place in the container, such as /model.
    """
    inner = PurePosixPath(model["folder"]).relative_to(model["mount"])
    return str(PurePosixPath(target) / inner)


def locate(model: ModelSource, roots: list[str]) -> Found:
    """The first root that has the model in the recipe's revision.

    Only the pinned revision counts. A plain folder proves its own by what huggingface_hub's download
    left there. If none is pinned, the hub layout's is what refs/main names: never just some snapshot
    that happens to be there.

    Raises:
        UserError: no root has it; lists every place that was looked at and what was there.
    """
    looked = []
    for root in roots:
        base = Path(os.path.expandvars(root)).expanduser()
        plain = base / model.name
        hub = base / f"models--{model.id.replace('/', '--')}"
        told = _revisions_of(plain)
        if (plain / "config.json").is_file() and (model.revision is None or told == {model.revision}):
            return Found(plain, "plain", told.pop() if len(told) == 1 else None)
        looked.append(f"{plain}: {_why_not_plain(plain, told, model.revision)}")
        revision = model.revision or _main(hub)
        if revision and (hub / "snapshots" / revision / "config.json").is_file():
            return Found(hub / "snapshots" / revision, "hub", revision)
        looked.append(f"{hub}: {_why_not(hub, revision)}")
    raise UserError(
        f"no weights of {model.id} under the site's roots",
        where="weight_roots",
        expected=f"revision {model.revision or 'of refs/main'}",
        found="; ".join(looked),
        remedy="put the weights under one of the roots, or add the right root to the site file",
    )


def _main(hub: Path) -> str | None:
    reference = hub / "refs" / "main"
    return reference.read_text(encoding="utf-8").strip() if reference.is_file() else None


def _revisions_of(plain: Path) -> set[str]:
    """The commits that huggingface_hub noted when it downloaded into this folder, one note a file."""
    notes = (plain / ".cache/huggingface/download").rglob("*.metadata")
    return {note.read_text(encoding="utf-8").partition("\n")[0].strip() for note in notes}


def _why_not_plain(plain: Path, told: set[str], wanted: str | None) -> str:
    if not plain.is_dir():
        return "not there"
    if not (plain / "config.json").is_file():
        return "no config.json"
    if not told:
        return f"nothing there tells its revision, wanted {wanted} (hf download --local-dir notes it)"
    return f"wrong revision {', '.join(sorted(told))}, wanted {wanted}"


def _why_not(hub: Path, revision: str | None) -> str:
    if not hub.is_dir():
        return "not there"
    have = sorted(path.name for path in (hub / "snapshots").glob("*"))
    return f"snapshots {have or 'none'}, wanted {revision or 'refs/main, which is missing'}"
