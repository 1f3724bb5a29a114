"""YAML to typed objects, with errors that name file and key and say what was probably meant."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from serve_repro.documents import read_yaml
from serve_repro.errors import UserError

Document = TypeVar("Document", bound=BaseModel)


def load(path: Path, kind: type[Document]) -> Document:
    """Read a YAML file as one strict document whose name, if it has one, is the file's.

    Raises:
        UserError: every mistake in the file, each with its key.
    """
    document = parse(read_yaml(path), kind, str(path))
    name = getattr(document, "name", path.stem)
    if name != path.stem:
        raise UserError(
            "name and file name differ", where=f"{path}: name", expected=path.stem, found=name
        )
    return document


def parse(value: Any, kind: type[Document], where: str) -> Document:
    """Check a plain value against a document type; see `load` for the errors."""
    if not isinstance(value, Mapping):
        raise UserError("is not a mapping of keys", where=where, found=type(value).__name__)
    try:
        return kind.model_validate(dict(value))
    except ValidationError as error:
        told = [_tell(kind, entry) for entry in error.errors()]
        raise UserError(
            "; ".join(told), where=where, remedy="see config/README.md for every key"
        ) from error


def _tell(kind: type[BaseModel], entry: Any) -> str:
    """One mistake, on one line."""
    location = entry["loc"]
    key = ".".join(str(part) for part in location) or "(whole file)"
    if entry["type"] == "extra_forbidden":
        known = _keys_at(kind, location[:-1])
        return f"{key}: unknown key{meant(str(location[-1]), known)}"
    if entry["type"] == "missing":
        return f"{key}: this key is missing"
    message = entry["msg"].removeprefix("Value error, ")
    if entry["type"] == "value_error":
        return f"{key}: {message}"
    return f"{key}: {message[0].lower()}{message[1:]}, found {entry['input']!r}"


def meant(word: str, known: Iterable[str]) -> str:
    """', did you mean ...?' for the nearest known word; otherwise the list of them."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f", did you mean {near[0]!r}?"
    return f" (known: {', '.join(words)})" if words else ""


def _keys_at(kind: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """The keys of the document part that a validation error points into."""
    part: Any = kind
    for step in location:
        models = [entry for entry in _models(part) if step in entry.model_fields]
        if models:
            part = models[0].model_fields[step].annotation
    found = list(_models(part))
    return list(found[0].model_fields) if found else []


def _models(annotation: Any) -> list[type[BaseModel]]:
    """All document types that stand in an annotation (through lists, unions, mappings)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]
