"""Have the resolved image on this node and prove it; a pinned environment is compared with its proof."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.image.engine import engine_of
from serve_repro.image.pull import have
from serve_repro.image.resolved import read_image
from serve_repro.node import require_here


def main(arguments: argparse.Namespace) -> None:
    """image.json -> receipt of this node."""
    require_here(arguments.node)
    document = read_json(arguments.image)
    image, engine = read_image(document), engine_of(arguments.engine)
    outcome = have(engine, image, arguments.node)
    runtime = arguments.engine["runtime"]
    receipt = {"node": arguments.node, "runtime": runtime, "target": engine.target(image), **document}
    write_json(arguments.output, receipt)
    _note(arguments.history, runtime, engine.version(), outcome._asdict())
    found = "was there" if outcome.tries == 0 else f"pulled in {outcome.seconds:.1f} s"
    program.LOGGER.info("node %s has %s (%s)", arguments.node, image.pinned, found)


def _note(history: Path, runtime: str, version: str, outcome: dict[str, Any]) -> None:
    """Add a line about this proof. Not part of the receipt: a second look must change no receipt."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"verified_at": at, "runtime": runtime, "engine_version": version, **outcome}
    history.parent.mkdir(parents=True, exist_ok=True)
    with history.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, sort_keys=True) + "\n")


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--image", type=Path, required=True, help="image.json")
    parser.add_argument("--engine", type=json.loads, required=True, help="JSON: the site's engine")
    parser.add_argument("--node", required=True, help="this node's name")
    parser.add_argument("--history", type=Path, required=True, help="every proof, a line each")
    parser.add_argument("--output", type=Path, required=True, help="the node's receipt")
    program.run(main, parser.parse_args())
