"""Find a recipe's models, fetch them where that is allowed, and list every file with its hash."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from serve_repro import program
from serve_repro.documents import digest, write_json
from serve_repro.recipe.load import parse
from serve_repro.recipe.recipe import ModelSource
from serve_repro.weights.download import download, is_cut
from serve_repro.weights.links import check_links
from serve_repro.weights.locate import Absent, Found
from serve_repro.weights.manifest import files_of, manifest
from serve_repro.weights.seen import find


def bring(model: ModelSource, sources: dict[str, Any]) -> Found:
    """The model's place; downloaded, or its download finished, only where the site allows it."""
    root = sources["download_to"]
    try:
        found = find(model, sources)
    except Absent:
        if root is None:
            raise
        return download(model.id, model.revision, root)
    if root is not None and found.root == root and is_cut(model.id, found):
        return download(model.id, found.revision, root)
    return found


def main(arguments: argparse.Namespace) -> None:
    """Models and where they may come from -> manifest of all their files."""
    sources = json.loads(arguments.sources)
    models = []
    for value in sources["models"]:
        source = parse(value, ModelSource, "model")
        found = bring(source, sources)
        program.LOGGER.info("%s: %s (%s)", source.id, found.folder, found.layout)
        if sources["mounted"]:
            check_links(found, files_of(found.folder))
        models.append(manifest(source.id, found, shared=found.root in sources["shared"]))
    together = digest([model["digest"] for model in models])
    write_json(arguments.output, {"models": models, "digest": f"sha256:{together}"})


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument(
        "--sources",
        required=True,
        help='as JSON: {"models": [{"id", "revision"}, ...], "roots": [...], "shared": [...], '
        '"download_to": root or null, "overrides": {id: folder}, "mounted": in containers or not}',
    )
    parser.add_argument("--output", type=Path, required=True, help="manifest.json")
    program.run(main, parser.parse_args())
