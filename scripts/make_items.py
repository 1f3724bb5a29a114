"""Make questions with answers in gsm8k's record format, from a seed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.documents import digest, write_json, write_text
from serve_repro.items import make_items


def main(arguments: argparse.Namespace) -> None:
    """Numbers of a recipe -> train.jsonl, test.jsonl and their manifest."""
    folder: Path = arguments.output.parent
    splits = make_items(**json.loads(arguments.numbers))
    for split, records in splits.items():
        write_text(folder / f"{split}.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    write_json(arguments.output, {"folder": str(folder), "digest": f"sha256:{digest(splits)}"})
    program.LOGGER.info("made %d questions in %s", len(splits["test"]), folder)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--numbers", required=True, help="eval.dataset.made of a recipe, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="manifest.json beside the items")
    program.run(main, parser.parse_args())
