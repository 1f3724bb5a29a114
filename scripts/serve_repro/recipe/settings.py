"""The settings of one workflow run: which recipes, at which site."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serve_repro.recipe.base import Name, Strict


class Settings(Strict):
    """config/config.yaml, and the files that a profile puts over it."""

    recipes: Annotated[list[Name], Field(min_length=1)]
    """Recipes to reproduce: names of config/recipes/<name>.yaml."""
    site: Name
    """Where to run them: the name of config/sites/<name>.yaml."""
    concurrencies: list[int] | None = None
    """Only these points, of those that the recipes have; null: all."""
    patches: dict[Name, bool] = {}
    """Switches over the recipes' own lists of patches: false takes one out, true puts one behind."""
    weight_overrides: dict[str, str] = {}
    """{model id: folder}: take the model from exactly there, and do not search the site's roots."""
    repeats: Annotated[int, Field(ge=1)] = 1
    """How often each point is measured, each time with a server started anew."""
    reuse: str | None = None
    """Another checkout, or its results: points there that are the same measurement are taken."""
