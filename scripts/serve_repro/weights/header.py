"""Whether a safetensors file is whole, told from its header alone.

The format: 8 bytes with the header's length (little-endian), the header as JSON, then the tensors'
bytes. Each tensor's `data_offsets` count from the header's end; the last one ends where the file does.
"""

from __future__ import annotations

import json
from pathlib import Path

from serve_repro.errors import UserError

LENGTH_BYTES = 8
MOST_BYTES = 100_000_000
"""Longest header that the format's own library accepts."""


def check_header(path: Path) -> None:
    """Compare a file's size with what its header says it holds.

    Raises:
        UserError: no header, one that cannot be read, or a file that is cut short or too long.
        OSError: the file cannot be opened or read.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(MOST_BYTES, size - LENGTH_BYTES):
            raise UserError(
                "this safetensors file ends within its header, or is none",
                where=str(path),
                expected=f"{LENGTH_BYTES + length} bytes at least",
                found=f"{size} bytes",
                remedy="fetch this file again",
            )
        text = stream.read(length)
    try:
        entries = json.loads(text)
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        whole = LENGTH_BYTES + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise UserError("this safetensors file has a damaged header", where=str(path)) from error
    if size != whole:
        raise UserError(
            f"this safetensors file is too {'short' if size < whole else 'long'} for its header",
            where=str(path),
            expected=f"{whole} bytes",
            found=f"{size} bytes",
            remedy="fetch this file again",
        )
