"""Write one point's plan: the exact commands, environments and numbers of all that follows."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_json
from serve_repro.plan.build import make_plan
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site


def main(arguments: argparse.Namespace) -> None:
    """Recipe + site + concurrency -> plan.json."""
    recipe, site = load(arguments.recipe, Recipe), load(arguments.site, Site)
    recipe = recipe.model_copy(update=arguments.changes)
    plan = make_plan(recipe, site, arguments.concurrency)
    for warning in plan.warnings:
        program.LOGGER.info("note: %s", warning)
    write_json(arguments.output, plan.model_dump(mode="json"))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--recipe", type=Path, required=True, help="recipe file")
    parser.add_argument("--changes", type=json.loads, required=True, help="JSON: the settings' changes")
    parser.add_argument("--site", type=Path, required=True, help="site file")
    parser.add_argument("--concurrency", type=int, required=True, help="live session trees")
    parser.add_argument("--output", type=Path, required=True, help="plan.json")
    program.run(main, parser.parse_args())
