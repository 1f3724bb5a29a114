"""Plans of the shipped recipes and sites, for tests."""

from __future__ import annotations

from pathlib import Path

from serve_repro.plan.build import make_plan
from serve_repro.plan.model import Plan
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

BASE = Path(__file__).parents[2]


def plan_of(recipe: str, site: str, concurrency: int) -> Plan:
    """The plan of a shipped recipe at a shipped site."""
    return make_plan(
        load(BASE / f"config/recipes/{recipe}.yaml", Recipe),
        load(BASE / f"config/sites/{site}.yaml", Site),
        concurrency,
    )
