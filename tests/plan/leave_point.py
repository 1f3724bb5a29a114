"""Stands for scripts/replay.py: leaves a valid point of the receipts that it is given, at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from serve_repro import driver
from serve_repro.documents import read_json, write_json, write_text
from serve_repro.plan.model import read_plan
from serve_repro.point.proofs import identity, read_proofs
from serve_repro.point.seal import seal


def main(given: argparse.Namespace) -> None:
    """Plan + receipts -> replay.json and an attempt."""
    plan = read_plan(given.plan)
    proofs = read_proofs(
        given.weights, given.image, given.patches, given.patch_set, given.dataset, given.client
    )
    folder: Path = given.output.parent
    attempt = folder / "attempts/20260101T000000Z"
    write_text(attempt / "client/artifacts/profile_export.jsonl", f"{folder}\n")
    write_text(attempt / "rank0/cache/code", "compiled")
    point = {
        "recipe": plan.recipe,
        "site": plan.site,
        "concurrency": plan.concurrency,
        "attempt": str(attempt.relative_to(folder)),
        "nodes": plan.nodes,
        "status": "valid",
        "validity": "smoke",
        "identity": identity(plan, proofs, driver.VERSION),
        "gates": [{"gate": "completed", "outcome": "pass", "seen": "1 completed"}],
    }
    write_json(attempt / "point.json", point)
    sealed = {"evidence": seal(attempt), "patch_set": read_json(given.patch_set)["id"]}
    write_json(given.output, point | sealed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("weights", "image", "patches"):
        parser.add_argument(f"--{name}", type=Path, nargs="+")
    for name in ("plan", "patch-set", "dataset", "client", "output"):
        parser.add_argument(f"--{name}", type=Path)
    main(parser.parse_known_args()[0])
