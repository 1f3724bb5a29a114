"""Draw the course of one point through its window, from the server's metrics."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.client.series import read_series
from serve_repro.documents import read_json
from serve_repro.draw import course
from serve_repro.result_paths import repeat_of


def main(arguments: argparse.Namespace) -> None:
    """replay.json, with the artifacts of the attempt that it names -> a picture."""
    point = read_json(arguments.replay)
    artifacts = arguments.replay.parent / point["attempt"] / "client" / "artifacts"
    title = f"{point['recipe']}, concurrency {point['concurrency']}"
    run = repeat_of(arguments.replay)
    if run > 1:
        title += f", run {run}"
    course.draw(title, read_series(artifacts, course.WANTED), arguments.output)
    program.LOGGER.info("%s", arguments.output)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--replay", type=Path, required=True, help="replay.json")
    parser.add_argument("--output", type=Path, required=True, help="the picture, .svg or .png")
    program.run(main, parser.parse_args())
