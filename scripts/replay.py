"""Measure one point: boot the server, replay the traces against it, judge the result.

Exit code 0 and a replay.json only for a valid point. Otherwise the evidence stays in the point's
attempts/ folder, with the reason in its point.json, and nothing stands where a result would.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.documents import read_json, write_json
from serve_repro.plan.model import read_plan
from serve_repro.point.lock import only_one
from serve_repro.point.measure import measure
from serve_repro.point.proofs import read_proofs
from serve_repro.point.seal import seal


def main(arguments: argparse.Namespace) -> int:
    """Plan + receipts -> replay.json, or evidence of why not."""
    plan = read_plan(arguments.plan)
    proofs = read_proofs(
        arguments.weights,
        arguments.image,
        arguments.patches,
        arguments.patch_set,
        arguments.dataset,
        arguments.client,
    )
    folder: Path = arguments.output.parent
    with only_one(folder):
        # Snakemake makes nothing for a target that exists: an old table would hide a lost point.
        arguments.summary.unlink(missing_ok=True)
        point = measure(plan, proofs, folder)
    where = folder / point["attempt"]
    if point["status"] != "valid":
        program.LOGGER.error(
            "error: %s at concurrency %d is %s: %s\n  evidence: %s",
            plan.recipe,
            plan.concurrency,
            point["status"],
            point["reason"],
            where,
        )
        return 130 if point["status"] == "interrupted" else 1
    # For whoever takes this point into another checkout.
    sealed = {"evidence": seal(where), "patch_set": read_json(arguments.patch_set)["id"]}
    write_json(arguments.output, point | sealed)
    program.LOGGER.info("valid (%s): %s", point["validity"], where)
    return 0


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json")
    parser.add_argument("--weights", type=Path, nargs="+", required=True, help="receipts, one a node")
    parser.add_argument("--image", type=Path, nargs="+", required=True, help="receipts, one a node")
    parser.add_argument("--patches", type=Path, nargs="+", required=True, help="receipts, one a node")
    parser.add_argument("--patch-set", type=Path, required=True, help="set.json")
    parser.add_argument("--dataset", type=Path, required=True, help="the traces' manifest.json")
    parser.add_argument("--client", type=Path, required=True, help="the client's environment.json")
    parser.add_argument("--summary", type=Path, required=True, help="table that must not outlive it")
    parser.add_argument("--output", type=Path, required=True, help="replay.json")
    program.run(main, parser.parse_args())
