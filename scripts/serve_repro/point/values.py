"""What the names in a plan stand for in one attempt: folders, addresses, ports, interpreters."""

from __future__ import annotations

from pathlib import Path

from serve_repro.documents import read_json
from serve_repro.errors import UserError
from serve_repro.image.environment import python_of
from serve_repro.launch.network import choose_ports, own_address
from serve_repro.patches.overlay import mounts
from serve_repro.plan.model import Plan
from serve_repro.point.proofs import Proofs
from serve_repro.runtimes import RUNTIMES

EXECUTABLE = {("process", "local"), ("process", "srun")}
"""(runtime, runner) pairs that this version can start; others are planned and shown only."""


def check_executable(plan: Plan) -> None:
    """Refuse what can only be planned.

    Raises:
        UserError: the site's runtime or runner cannot be started by this version.
    """
    if (plan.runtime, plan.runner) not in EXECUTABLE:
        raise UserError(
            f"this version plans runtime {plan.runtime} on runner {plan.runner}, and cannot start it",
            where=f"config/sites/{plan.site}.yaml",
            expected=" or ".join(sorted(f"{runtime} on {runner}" for runtime, runner in EXECUTABLE)),
            remedy="scripts/show_plan.py prints the commands for you to run by hand",
        )


def bind(
    plan: Plan, proofs: Proofs, nodes: list[str], run_id: str, attempt: Path, scratch: Path
) -> list[dict[str, str]]:
    """Values for every name, by rank, but for those that only a rank's node knows.

    Args:
        plan: the point.
        proofs: its receipts.
        nodes: the node of each rank; this process runs on the first.
        run_id: the attempt's mark.
        attempt: the attempt's folder.
        scratch: a short-lived folder on this node, for the client.

    Raises:
        UserError: no free port, or no route to a node.
    """
    api_port, master_port = choose_ports(plan.ports, 2)
    master, _ = own_address(nodes[-1])
    models = proofs.weights[0]["models"]
    shared = {
        "RUN_ID": run_id,
        "RUN_DIR": str(attempt.absolute()),
        "WEIGHTS_DIR": str(Path(models[0]["folder"]).absolute()),
        "DRAFT_DIR": str(Path(models[-1]["folder"]).absolute()),
        "IMAGE_DIGEST": proofs.image[0]["digest"],
        # Not resolved: a venv's Python is a link, and its place is what makes it the venv's.
        "SERVE_PYTHON": str(python_of(plan.image.removeprefix("envs/")).absolute()),
        "CLIENT_PYTHON": str(python_of("client").absolute()),
        "PATCH_DIR": str(proofs.patch_folder.absolute()),
        "TRACES_DIR": str(Path(proofs.dataset["folder"]).absolute()),
        "SCRATCH": str(scratch),
        "HUB_DIR": str(scratch / "hub"),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(master_port),
        "API_PORT": str(api_port),
    }
    if "OVERLAY_MOUNTS" in plan.bindings:
        shared["OVERLAY_MOUNTS"] = "\n".join(_overlay_mounts(plan, proofs.patch_folder))
    # A rank's holder adds what only its node knows: its address, and a scratch folder of its own.
    return [
        {**shared, "NODE": node, "RANK_DIR": str((attempt / f"rank{rank}").absolute())}
        for rank, node in enumerate(nodes)
    ]


def _overlay_mounts(plan: Plan, folder: Path) -> list[str]:
    """Words that mount the patched files; only now is it known where the image has its own."""
    overlay = read_json(folder / "overlay.json")
    mount = RUNTIMES[plan.runtime].mount
    return [word for pair in mounts(overlay, folder) for word in mount(*pair)]
