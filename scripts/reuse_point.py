"""Take one finished point of another checkout, if it is the same measurement; nothing is started."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from serve_repro import driver, program
from serve_repro.documents import read_json, write_json
from serve_repro.plan.model import read_plan
from serve_repro.point.lock import only_one
from serve_repro.result_paths import run_of
from serve_repro.reuse.identity import identities_here
from serve_repro.reuse.source import results_of
from serve_repro.reuse.take import Wanted, take


def main(arguments: argparse.Namespace) -> None:
    """Plan + proofs that need no node + the other checkout -> replay.json and its evidence."""
    proofs = {
        "weights": arguments.weights,
        "image": arguments.image,
        "dataset": arguments.dataset,
        "client": arguments.client,
    }
    patch_set = read_json(arguments.patch_set)["id"]
    here = identities_here(read_plan(arguments.plan).digest(), driver.VERSION, patch_set, proofs)
    wanted = Wanted(run_of(arguments.output), here, arguments.declared)
    results = results_of(arguments.reuse) if arguments.reuse else None
    folder: Path = arguments.output.parent
    with only_one(folder):
        # As for a measurement: an old table would hide a lost point.
        arguments.summary.unlink(missing_ok=True)
        point = take(wanted, results, folder, datetime.now(UTC))
        write_json(arguments.output, point)
    program.LOGGER.info(
        "reused (%s): %s, %d files", point["validity"], folder / point["attempt"], len(point["evidence"])
    )


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json")
    parser.add_argument("--weights", type=Path, required=True, help="the weights' manifest.json")
    parser.add_argument("--image", type=Path, required=True, help="image.json")
    parser.add_argument("--patch-set", type=Path, required=True, help="set.json")
    parser.add_argument("--dataset", type=Path, required=True, help="the traces' manifest.json")
    parser.add_argument("--client", type=Path, required=True, help="the client's environment.json")
    parser.add_argument("--declared", required=True, help="digest of what people wrote for this point")
    # May stand without a value: a point that was taken before is only checked again.
    parser.add_argument("--reuse", nargs="?", help="the other checkout, or its results folder")
    parser.add_argument("--summary", type=Path, required=True, help="table that must not outlive it")
    parser.add_argument("--output", type=Path, required=True, help="replay.json")
    program.run(main, parser.parse_args())
