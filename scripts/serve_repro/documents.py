"""Read and write the small files (YAML in, JSON out) that everything else is built from."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from serve_repro.errors import UserError


class _StrictLoader(yaml.SafeLoader):
    """YAML without silent loss: a key that stands twice is an error, not 'the last one wins'."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Parse one YAML file.

    Raises:
        UserError: missing file, syntax error (with line), or a repeated key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=str(path)) from error
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"is not valid YAML: {problem}", where=f"{path}{line}") from error


def read_json(path: Path) -> Any:
    """Parse one JSON file.

    Raises:
        UserError: missing, unreadable, or cut short.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=str(path)) from error
    except ValueError as error:
        raise UserError(f"is not valid JSON: {error}", where=str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part (NFS too)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write sorted, indented JSON atomically: equal values give equal bytes."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def digest(value: Any) -> str:
    """Sha256 (hex) of a JSON value, independent of key order and layout."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Sha256 (hex) of a file's bytes, read in large pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
