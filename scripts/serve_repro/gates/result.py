"""What one gate found."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Result(NamedTuple):
    """What one gate found."""

    gate: str
    outcome: Literal["pass", "fail", "unknown"]
    seen: str


def result(gate: str, good: bool | None, seen: str) -> Result:
    """A result from yes, no or cannot say."""
    return Result(gate, "unknown" if good is None else "pass" if good else "fail", seen)
