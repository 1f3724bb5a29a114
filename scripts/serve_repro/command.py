"""A command as data: words and environment, nothing started yet."""

from __future__ import annotations

from serve_repro.recipe.base import Strict


class Command(Strict):
    """One process to start."""

    argv: list[str]
    env: dict[str, str] = {}
    """What its environment has beyond the launcher's clean base."""
