"""What the names in a plan stand for in one attempt: folders, addresses, ports, interpreters."""

from __future__ import annotations

import socket
from pathlib import Path

from serve_repro.errors import UserError
from serve_repro.image.environment import python_of
from serve_repro.launch.network import address_towards, choose_ports
from serve_repro.plan.model import Plan
from serve_repro.point.proofs import Proofs

EXECUTABLE = {("process", "local")}
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
            expected=" or ".join(f"{runtime} on {runner}" for runtime, runner in EXECUTABLE),
            remedy="scripts/show_plan.py prints the commands for you to run by hand",
        )


def bind(plan: Plan, proofs: Proofs, run_id: str, folder: Path, scratch: Path) -> list[dict[str, str]]:
    """Values for every name, by rank; the client uses rank 0's.

    Raises:
        UserError: no free port, or no route to a node.
    """
    check_executable(plan)
    api_port, master_port = choose_ports(plan.ports, 2)
    master, _ = address_towards("127.0.0.1")
    models = proofs.weights[0]["models"]
    shared = {
        "RUN_ID": run_id,
        "RUN_DIR": str(folder.absolute()),
        "SCRATCH": str(scratch),
        "WEIGHTS_DIR": str(Path(models[0]["folder"]).absolute()),
        "DRAFT_DIR": str(Path(models[-1]["folder"]).absolute()),
        "IMAGE_DIGEST": proofs.image[0]["digest"],
        # Not resolved: a venv's Python is a link, and its place is what makes it the venv's.
        "SERVE_PYTHON": str(python_of(plan.image.removeprefix("envs/")).absolute()),
        "CLIENT_PYTHON": str(python_of("client").absolute()),
        "PATCH_DIR": str(proofs.patch_folder.absolute()),
        "TRACES_DIR": str(Path(proofs.dataset["folder"]).absolute()),
        "HUB_DIR": str(scratch / "hub"),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(master_port),
        "API_PORT": str(api_port),
        "HOST_NAME": socket.gethostname(),
    }
    values = []
    for rank in plan.ranks:
        address, interface = address_towards(master)
        own = {
            "RANK_DIR": str((folder / f"rank{rank.rank}").absolute()),
            "HOST_ADDR": address,
            "INTERFACE": interface,
        }
        values.append({**shared, **own})
    return values
