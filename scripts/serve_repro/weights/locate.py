"""Find a model's folder under the site's roots: a plain folder, or Hugging Face's hub layout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from serve_repro.errors import UserError
from serve_repro.recipe.recipe import ModelSource


class Found(NamedTuple):
    """Where a model is."""

    folder: Path
    layout: str
    revision: str | None
    """The hub commit, where the layout tells it."""


def locate(model: ModelSource, roots: list[str]) -> Found:
    """The first root that has the model in the recipe's revision.

    In the hub layout only the pinned revision counts, or, if none is pinned, what refs/main names:
    never just some snapshot that happens to be there.

    Raises:
        UserError: no root has it; lists every place that was looked at and what was there.
    """
    looked = []
    for root in roots:
        base = Path(os.path.expandvars(root)).expanduser()
        plain = base / model.name
        hub = base / f"models--{model.id.replace('/', '--')}"
        if (plain / "config.json").is_file():
            return Found(plain, "plain", None)
        looked.append(f"{plain}: {'no config.json' if plain.is_dir() else 'not there'}")
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


def _why_not(hub: Path, revision: str | None) -> str:
    if not hub.is_dir():
        return "not there"
    have = sorted(path.name for path in (hub / "snapshots").glob("*"))
    return f"snapshots {have or 'none'}, wanted {revision or 'refs/main, which is missing'}"
