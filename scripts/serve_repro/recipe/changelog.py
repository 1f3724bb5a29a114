"""docs/perf-changelog.yaml: each change of a recipe that can have changed its numbers, and why."""

from __future__ import annotations

import datetime

from serve_repro.documents import digest
from serve_repro.recipe.base import Name, Sha256, Strict
from serve_repro.recipe.recipe import Recipe

NOT_MEASURED: dict[str, bool | set[str]] = {
    "name": True,
    "title": True,
    "publication": True,
    "deadlines": True,
    "concurrencies": True,
    "eval": True,
    "kv_offload": {"layout"},
}
"""Keys of a recipe that no point's numbers depend on; of kv_offload, what is merely expected."""


class Entry(Strict):
    """One change of what a recipe measures."""

    recipe: Name
    """The recipe."""
    identity: Sha256
    """Its identity from then on."""
    date: datetime.date
    """The day of the change."""
    why: str
    """What was changed, and why."""


class Changelog(Strict):
    """All changes, oldest first. Entries are added, never edited."""

    entries: list[Entry]
    """The entries."""

    def current(self, recipe: str) -> Entry | None:
        """A recipe's newest entry; None if it has none."""
        return next((entry for entry in reversed(self.entries) if entry.recipe == recipe), None)


def identity(recipe: Recipe) -> str:
    """Hash of all that a recipe measures.

    Keys that hold their default count as absent, so that a new key with a default touches no recipe.
    """
    return digest(recipe.model_dump(mode="json", exclude=NOT_MEASURED, exclude_defaults=True))
