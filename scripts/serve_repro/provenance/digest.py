"""Hash a file for the record, and refuse one that holds a secret."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from serve_repro.errors import UserError

_ENDINGS = ("_TOKEN", "_PASSWORD", "_SECRET", "_API_KEY")
_SHORTEST = 8
_CHUNK = 1 << 20


def secrets_of(environment: Mapping[str, str]) -> dict[str, bytes]:
    """{variable: its value} for the variables whose names say that they hold a secret."""
    return {
        name: value.encode()
        for name, value in environment.items()
        if name.upper().endswith(_ENDINGS) and len(value) >= _SHORTEST
    }


def sha256_without(path: Path, secrets: Mapping[str, bytes]) -> str:
    """Hex sha256 of a file in which none of the secrets stands.

    Raises:
        UserError: one does; its value is not told.
    """
    digest = hashlib.sha256()
    kept = max(map(len, secrets.values()), default=1) - 1
    tail = b""
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            # The end of the last chunk again: a secret may lie across two.
            window = tail + chunk
            for name, value in secrets.items():
                if value in window:
                    raise UserError(
                        "a file of the record holds a secret",
                        where=str(path),
                        found=f"the value of {name}",
                        remedy="take it out of the recipe, site or patch that put it there, "
                        "withdraw that secret, and run again",
                    )
            tail = window[len(window) - kept :] if kept else b""
    return digest.hexdigest()
