"""Make small traces in the published data set's record format, from a seed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from serve_repro import program
from serve_repro.documents import digest, write_json
from serve_repro.traces import make_traces


def main(arguments: argparse.Namespace) -> None:
    """Numbers of a recipe -> a folder of traces and its manifest."""
    folder: Path = arguments.output.parent / "traces"
    traces = make_traces(**json.loads(arguments.numbers))
    for trace in traces:
        write_json(folder / f"{trace['id']}.json", trace)
    manifest = {"folder": str(folder), "entries": len(traces), "digest": f"sha256:{digest(traces)}"}
    write_json(arguments.output, manifest)
    program.LOGGER.info("made %d traces in %s", len(traces), folder)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--numbers", required=True, help="replay.dataset.made of a recipe, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="manifest.json beside traces/")
    program.run(main, parser.parse_args())
