"""Evaluate one recipe: boot a server of its own, ask every question, judge the answers.

Exit code 0 and an eval.json only for a valid evaluation; else the evidence stays, as for a point.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_json
from serve_repro.plan.model import read_evaluation
from serve_repro.point.lock import only_one
from serve_repro.point.measure import measure
from serve_repro.point.proofs import read_proofs


def main(arguments: argparse.Namespace) -> int:
    """Plan + receipts -> eval.json, or evidence of why not."""
    plan = read_evaluation(arguments.plan)
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
        arguments.evals.unlink(missing_ok=True)
        point = measure(plan, proofs, folder)
    where = folder / point["attempt"]
    if point["status"] != "valid":
        program.LOGGER.error(
            "error: the evaluation of %s by %s is %s: %s\n  evidence: %s",
            plan.recipe,
            plan.accuracy.task,
            point["status"],
            point["reason"],
            where,
        )
        return 130 if point["status"] == "interrupted" else 1
    write_json(arguments.output, point)
    program.LOGGER.info("valid (%s): %s", point["validity"], where)
    return 0


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json")
    parser.add_argument("--weights", type=Path, nargs="+", required=True, help="receipts, one a node")
    parser.add_argument("--image", type=Path, nargs="+", required=True, help="receipts, one a node")
    parser.add_argument("--patches", type=Path, nargs="+", required=True, help="receipts, one a node")
    parser.add_argument("--patch-set", type=Path, required=True, help="set.json")
    parser.add_argument("--dataset", type=Path, required=True, help="the items' manifest.json")
    parser.add_argument("--client", type=Path, required=True, help="the client's environment.json")
    parser.add_argument("--evals", type=Path, required=True, help="table that must not outlive it")
    parser.add_argument("--output", type=Path, required=True, help="eval.json")
    program.run(main, parser.parse_args())
