"""Find a model's folder: a plain folder, or Hugging Face's hub layout."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from serve_repro.errors import UserError
from serve_repro.recipe.recipe import ModelSource
from serve_repro.weights.origin import revisions_noted

LOGGER = logging.getLogger("serve_repro")


class Found(NamedTuple):
    """Where a model is."""

    folder: Path
    layout: str
    """plain or hub"""
    revision: str | None
    """The hub commit, where the layout tells it."""
    root: str | None = None
    """The root that it was found under, as the site names it; None: it was named itself."""

    @property
    def mount(self) -> Path:
        """What a container must see: the hub layout's files are links that lead to its blobs."""
        return self.folder.parents[1] if self.layout == "hub" else self.folder


class Absent(UserError):
    """No root has the model."""


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
        Absent: no root has it; lists every place that was looked at and what was there.
    """
    looked = []
    for root in roots:
        for folder in (expanded(root) / model.name, expanded(root) / hub_name(model.id)):
            found = _at(folder, model.revision)
            if isinstance(found, Found):
                return found._replace(root=root)
            looked.append(f"{folder}: {found}")
    raise Absent(
        f"no weights of {model.id} under the site's roots",
        where="weight_roots",
        expected=f"revision {model.revision or 'of refs/main'}",
        found="; ".join(looked),
        remedy="put the weights under one of the roots, add the right root to the site file, or let "
        "this step download them (download_weights_to in the site file)",
    )


def named(model: ModelSource, path: str) -> Found:
    """The model in the folder that the settings name for it, and nowhere else.

    Args:
        model: what the recipe asks for.
        path: a plain folder, a hub layout's models--... folder, or one of its snapshots.

    Raises:
        UserError: it is not there in the recipe's revision. The roots are not searched then.
    """
    folder = expanded(path)
    if folder.parent.name == "snapshots":
        complete = (folder / "config.json").is_file()
        right = model.revision in (None, folder.name)
        found: Found | str = (
            Found(folder, "hub", folder.name)
            if complete and right
            else f"revision {folder.name}, {'complete' if complete else 'without config.json'}"
        )
    else:
        found = _at(folder, model.revision)
    if isinstance(found, Found):
        return found
    raise UserError(
        "the folder that is named for this model does not have it",
        where=f"weight_overrides.{model.id}: {folder}",
        expected=f"revision {model.revision or 'of refs/main, or a plain folder'}",
        found=found,
        remedy="name the right folder, or remove the key to search the site's roots",
    )


def expanded(path: str) -> Path:
    """A path of the configuration, its variables and ~ replaced."""
    return Path(os.path.expandvars(path)).expanduser()


def hub_name(model_id: str) -> str:
    """The folder of a model in the hub's layout."""
    return f"models--{model_id.replace('/', '--')}"


def _at(folder: Path, wanted: str | None) -> Found | str:
    """The model in this folder, of whichever layout, or why not."""
    if not folder.is_dir():
        return "not there"
    if folder.name.startswith("models--"):
        return _hub(folder, wanted)
    if not (folder / "config.json").is_file():
        return "no config.json"
    told = revisions_noted(folder)
    if wanted is None or told == {wanted}:
        return Found(folder, "plain", told.pop() if len(told) == 1 else None)
    if not told:
        return f"nothing there tells its revision, wanted {wanted} (hf download --local-dir notes it)"
    return f"wrong revision {', '.join(sorted(told))}, wanted {wanted}"


def _hub(hub: Path, wanted: str | None) -> Found | str:
    reference = hub / "refs" / "main"
    main = reference.read_text(encoding="utf-8").strip() if reference.is_file() else None
    revision = wanted or main
    if revision and (hub / "snapshots" / revision / "config.json").is_file():
        if main is not None and main != revision:
            LOGGER.info("%s: refs/main is %s, the recipe's revision %s counts", hub, main, revision)
        return Found(hub / "snapshots" / revision, "hub", revision)
    have = snapshots_of(hub)
    says = f"refs/main {main}" if main else "no refs/main"
    return f"snapshots {have or 'none'}, {says}, wanted {revision or 'refs/main, which is missing'}"


def snapshots_of(hub: Path) -> list[str]:
    """The revisions that a hub folder has."""
    return sorted(path.name for path in (hub / "snapshots").glob("*"))
