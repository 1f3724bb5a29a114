"""Print a plan's commands as a person would paste them into a shell."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.plan.build import make_plan
from serve_repro.plan.model import Plan, read_plan
from serve_repro.plan.shell import render
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site


def main(arguments: argparse.Namespace) -> None:
    """A plan.json, or recipe + site + concurrency -> shell text on standard output."""
    print(render(_plan(arguments)), end="")


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.plan is not None:
        return read_plan(arguments.plan)
    recipe = load(Path("config/recipes") / f"{arguments.recipe}.yaml", Recipe)
    site = load(Path("config/sites") / f"{arguments.site}.yaml", Site)
    return make_plan(recipe, site, arguments.concurrency or recipe.concurrencies[0])


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("plan", type=Path, nargs="?", help="a plan.json that a run has made")
    parser.add_argument("--recipe", default="kimik3-fp4-mi355x-vllm-agentic-tp8pp2", help="its name")
    parser.add_argument("--site", default="mi355x-amds", help="its name")
    parser.add_argument("--concurrency", type=int, help="a point of the recipe; default: the first")
    program.run(main, parser.parse_args())
