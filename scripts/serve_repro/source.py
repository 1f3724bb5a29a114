"""Which source of the workflow is running: its commit, and whether its files differ from it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any


def workflow_source(checkout: Path) -> dict[str, Any]:
    """{commit, changed}: the checkout's commit, and its files that differ from it.

    Both are None where the folder is no git checkout or git is not there: not known is not clean.
    """
    commit = _git(checkout, "rev-parse", "HEAD")
    status = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    if commit is None or status is None:
        return {"commit": None, "changed": None}
    return {"commit": commit.strip(), "changed": [line[3:] for line in status.splitlines()]}


def short(source: dict[str, Any] | None) -> str | None:
    """Twelve digits of the commit, with "+changes" where files differ; None if not known."""
    if not source or source["commit"] is None:
        return None
    return f"{source['commit'][:12]}{'+changes' if source['changed'] else ''}"


def _git(checkout: Path, *words: str) -> str | None:
    try:
        asked = subprocess.run(
            ["git", "-C", str(checkout), *words], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return str(asked.stdout) if asked.returncode == 0 else None
