"""The settings' switches of patches, laid over the recipes' own lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_repro.errors import UserError
from serve_repro.patches.series import Series, choose
from serve_repro.recipe.recipe import Recipe

WHERE = "config: patches"


def tables(series: Series, ids: list[str]) -> list[str]:
    """Those of the patches that bring rows for the tuned GEMM table."""
    known = {patch.id for patch in series.patches if patch.table is not None}
    return [name for name in ids if name in known]


def switched(
    series: Series, recipes: Mapping[str, Recipe], switches: Mapping[str, bool]
) -> dict[str, dict[str, Any]]:
    """{recipe: the keys of it that the switches change, with their values}.

    Raises:
        UserError: a switch names no patch, or switches off one that no recipe uses.
    """
    choose(series, list(switches), WHERE)
    named = {name for recipe in recipes.values() for name in recipe.patches}
    for name, on in switches.items():
        if not on and name not in named:
            raise UserError(f"no recipe of this run uses the patch {name}", where=WHERE)
    added = [name for name, on in switches.items() if on]
    changes: dict[str, dict[str, Any]] = {}
    for name, recipe in recipes.items() if switches else ():
        kept = [patch for patch in recipe.patches if switches.get(patch, True)]
        kept += [patch for patch in added if patch not in kept]
        changes[name] = {"patches": kept}
        if tables(series, recipe.patches) and not tables(series, kept):
            changes[name]["tuned_gemm"] = None  # the rows were switched off, and their table with them
    return changes
