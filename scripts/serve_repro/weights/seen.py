"""What a glance at weight files tells: enough to look again, never proof of their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve_repro.documents import digest
from serve_repro.errors import UserError
from serve_repro.recipe.recipe import ModelSource
from serve_repro.weights.locate import Found, locate, named
from serve_repro.weights.manifest import files_of


def find(model: ModelSource, sources: Mapping[str, Any]) -> Found:
    """Where a model is: in the folder that is named for it, else under the first root that has it.

    Raises:
        UserError: it is not there.
    """
    override = sources["overrides"].get(model.id)
    return named(model, override) if override is not None else locate(model, sources["roots"])


def seen(models: list[ModelSource], sources: Mapping[str, Any]) -> str:
    """A fingerprint of names, sizes and times; empty where no model can be seen.

    In the hub layout the revision says which files are meant and their names what is in them, so for a
    pinned model nothing counts there: that it was downloaded meanwhile is no change.
    """
    told: list[Any] = []
    for model in models:
        try:
            found = find(model, sources)
            if found.layout == "hub":
                told += [] if model.revision else [[model.id, found.revision]]
                continue
            told += [[model.id, *_status(found.folder, path)] for path in files_of(found.folder)]
        except (UserError, OSError):
            # The step itself says what is wrong, in full.
            continue
    return digest(told) if told else ""


def _status(folder: Path, file: Path) -> list[Any]:
    try:
        status = (folder / file).stat()
    except OSError as error:
        return [str(file), error.errno]
    return [str(file), status.st_size, status.st_mtime_ns]
