"""Find a recipe's models under the site's roots and list every file with its size and hash."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.documents import digest, write_json
from serve_repro.recipe.load import parse
from serve_repro.recipe.recipe import ModelSource
from serve_repro.weights.locate import locate
from serve_repro.weights.manifest import manifest


def main(arguments: argparse.Namespace) -> None:
    """Models and roots -> manifest of all their files."""
    sources = [parse(value, ModelSource, "model") for value in json.loads(arguments.models)]
    models = []
    for source in sources:
        found = locate(source, json.loads(arguments.roots))
        program.LOGGER.info("%s: %s (%s)", source.id, found.folder, found.layout)
        models.append(manifest(source.id, found))
    together = digest([model["digest"] for model in models])
    write_json(arguments.output, {"models": models, "digest": f"sha256:{together}"})


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--models", required=True, help="the recipe's models, as JSON; target first")
    parser.add_argument("--roots", required=True, help="the site's weight_roots, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="manifest.json")
    program.run(main, parser.parse_args())
