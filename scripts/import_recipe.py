"""Print an entry of an InferenceX master config as the beginning of a recipe, with what it lacks."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.documents import read_yaml, write_text
from serve_repro.errors import UserError
from serve_repro.inferencex.importer import read_entry, render
from serve_repro.recipe.load import meant


def main(arguments: argparse.Namespace) -> None:
    """An entry -> recipe YAML on standard output or in a file; the counts of what is to be done."""
    config = read_yaml(arguments.config)
    known = config if isinstance(config, dict) else {}
    if arguments.entry not in known:
        raise UserError(
            f"no entry {arguments.entry}{meant(arguments.entry, known)}", where=str(arguments.config)
        )
    if arguments.output is not None and arguments.output.exists():
        raise UserError(
            "is there already, and is not overwritten",
            where=str(arguments.output),
            remedy="choose another --output, or remove it",
        )
    imported = read_entry(arguments.entry, known[arguments.entry])
    text = render(imported)
    if arguments.output is None:
        print(text, end="")
    else:
        write_text(arguments.output, text)
    program.LOGGER.info(
        "%s: %d keys to fill in, %d to look at, %d assumed, %d of the entry left out",
        arguments.entry,
        *map(len, (imported.missing, imported.look, imported.assumed, imported.left)),
    )


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("config", type=Path, help="the master config, such as amd-master.yaml")
    parser.add_argument("entry", help="the entry's key")
    parser.add_argument("--output", type=Path, help="recipe to write; default: standard output")
    program.run(main, parser.parse_args())
