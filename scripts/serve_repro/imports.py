"""Which of our own files a program is made of, from its imports."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def sources(program: Path) -> tuple[str, ...]:
    """A program and every file of ours that it imports, directly or not.

    Rules that only read results list these as inputs: an edit of any of them makes the rule stale.
    """
    root = program.parent
    seen: dict[Path, None] = {}
    waiting = [program]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen[path] = None
        for module in _imported(path):
            parts = module.split(".")
            for length in range(1, len(parts) + 1):
                base = root.joinpath(*parts[:length])
                found = [base.with_suffix(".py"), base / "__init__.py"]
                waiting += [candidate for candidate in found if candidate.is_file()]
    return tuple(sorted(str(path) for path in seen))


@cache  # programs share most of their files
def _imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
