"""Write what editors and readers need of the document types: JSON schemas and the tables of keys."""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import BaseModel

from serve_repro import program
from serve_repro.documents import write_text
from serve_repro.patches.series import Series
from serve_repro.recipe.published import Published
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.reference import schema_text, with_tables
from serve_repro.recipe.settings import Settings
from serve_repro.recipe.site import Site

DOCUMENTS: dict[str, type[BaseModel]] = {
    "settings": Settings,
    "recipe": Recipe,
    "site": Site,
    "patches": Series,
    "published": Published,
}


def files(folder: Path) -> dict[Path, str]:
    """{file: text} of everything that is written; the README's own words stay."""
    made = {
        folder / "schemas" / f"{name}.schema.json": schema_text(kind) for name, kind in DOCUMENTS.items()
    }
    readme = folder / "README.md"
    made[readme] = with_tables(readme.read_text(encoding="utf-8"), DOCUMENTS)
    return made


def main(arguments: argparse.Namespace) -> None:
    """Types -> config/schemas/*.schema.json and the tables in config/README.md."""
    for path, text in files(arguments.folder).items():
        write_text(path, text)
        program.LOGGER.info("%s", path)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("config"), help="folder of README.md")
    program.run(main, parser.parse_args())
