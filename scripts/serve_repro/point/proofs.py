"""The receipts that a point stands on: what each proves, and a last cheap check before launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.documents import read_json
from serve_repro.errors import UserError
from serve_repro.plan.model import Plan
from serve_repro.weights.receipt import recheck


class Proofs(NamedTuple):
    """Everything that is proven before a point may start."""

    weights: list[dict[str, Any]]
    """One receipt a node; each holds a proof for the model and, if there is one, the draft."""
    image: list[dict[str, Any]]
    """One receipt a node."""
    patches: list[dict[str, Any]]
    """One receipt a node."""
    patch_folder: Path
    """Where the patch set was built."""
    dataset: dict[str, Any]
    client: dict[str, Any]


def read_proofs(
    weights: list[Path],
    image: list[Path],
    patches: list[Path],
    patch_set: Path,
    dataset: Path,
    client: Path,
) -> Proofs:
    """Read the receipts that the workflow made."""
    return Proofs(
        weights=[read_json(path) for path in weights],
        image=[read_json(path) for path in image],
        patches=[read_json(path) for path in patches],
        patch_folder=patch_set.parent,
        dataset=read_json(dataset),
        client=read_json(client),
    )


def check_proofs(plan: Plan, nodes: list[str], proofs: Proofs) -> None:
    """Every node that serves has every receipt, all agree, and no weight file changed since.

    Raises:
        UserError: names the node and what is missing or differs.
    """
    for kind in ("weights", "image", "patches"):
        receipts: list[dict[str, Any]] = getattr(proofs, kind)
        by_node = {receipt["node"]: receipt for receipt in receipts}
        for node in nodes:
            if node not in by_node:
                raise UserError(
                    f"this node has no receipt for {kind}",
                    where=f"node {node}",
                    expected=f"one receipt for each of {nodes}",
                    found=sorted(by_node),
                    remedy=f"snakemake results/{plan.recipe}/{kind}/nodes/{node}.json",
                )
        digests = {receipt["digest"] for receipt in receipts}
        if len(digests) > 1:
            raise UserError(
                f"nodes differ in their {kind}", found={n: r["digest"] for n, r in by_node.items()}
            )
    for receipt in proofs.weights:
        for model in receipt["models"]:
            recheck(model)


def identity(plan: Plan, proofs: Proofs, driver: int) -> dict[str, Any]:
    """Hashes of all that can change the numbers of a point."""
    return {
        "plan": f"sha256:{plan.digest()}",
        "weights": proofs.weights[0]["digest"],
        "image": proofs.image[0]["digest"],
        "patches": proofs.patches[0]["digest"],
        "dataset": proofs.dataset["digest"],
        "client": proofs.client["digest"],
        "driver": driver,
    }
