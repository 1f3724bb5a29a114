"""How a rank sees the world from inside its runtime."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """Paths as the rank itself sees them; ${NAME} stands for what the launch fills in."""

    vllm: list[str]
    """The words that start vLLM's command line."""
    weights: str
    draft: str
    patches: str
    results: str
    scratch: str
    cache: str
    """Compiled code."""
    overlay: str | None = None
    """Folder of the patched packages, first on PYTHONPATH; None: changed files are mounted instead."""
