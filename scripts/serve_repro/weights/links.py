"""Whether a model's links hold in a container, which sees the mounted folder and nothing above it."""

from __future__ import annotations

from pathlib import Path

from serve_repro.errors import UserError
from serve_repro.weights.locate import Found

MOST_LINKS = 40
"""As many as Linux follows."""


def check_links(found: Found, files: list[Path]) -> None:
    """Every link of the files leads, without an absolute path, to a place below the mount.

    Raises:
        UserError: names the file, the mount and where its link leads.
    """
    inner = found.folder.relative_to(found.mount)
    for file in files:
        leads = _leaves(found.mount, inner / file)
        if leads is not None:
            raise UserError(
                "this link leads out of the folder that containers see",
                where=str(found.folder / file),
                expected=f"a relative link to a place below {found.mount}",
                found=leads,
                remedy="put the file itself there, or use the hub's own layout",
            )


def _leaves(mount: Path, file: Path) -> str | None:
    """Where the first link that leaves the mount leads; None if none does."""
    todo, place, links = list(file.parts), Path(), 0
    while todo:
        step = todo.pop(0)
        if step == "..":
            if place == Path():
                return f"above {mount}"
            place = place.parent
            continue
        place /= step
        if (mount / place).is_symlink() and links < MOST_LINKS:
            target, links = (mount / place).readlink(), links + 1
            if target.is_absolute():
                return str(target)
            todo, place = [*target.parts, *todo], place.parent
    return None
