"""What the names in a plan stand for in one attempt: folders, addresses, ports, interpreters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve_repro.documents import digest, read_json
from serve_repro.image.environment import python_of
from serve_repro.launch.network import choose_ports, own_address
from serve_repro.patches.overlay import mounts
from serve_repro.plan.model import Plan
from serve_repro.point.proofs import Proofs
from serve_repro.runtimes import RUNTIMES


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
    target, draft = _model(proofs.weights[0]["models"][0]), _model(proofs.weights[0]["models"][-1])
    shared = {
        "RUN_ID": run_id,
        "RUN_DIR": str(attempt.absolute()),
        "WEIGHTS_MOUNT": target[0],
        "WEIGHTS_PATH": target[1],
        "DRAFT_MOUNT": draft[0],
        "DRAFT_PATH": draft[1],
        "IMAGE_DIGEST": proofs.image[0]["digest"],
        "CLIENT_PYTHON": str(python_of("client").absolute()),
        "PATCH_DIR": str(proofs.patch_folder.absolute()),
        "TRACES_DIR": str(Path(proofs.dataset["folder"]).absolute()),
        "SCRATCH": str(scratch),
        "HUB_DIR": str(scratch / "hub"),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(master_port),
        "API_PORT": str(api_port),
    }
    if "SERVE_PYTHON" in plan.bindings:
        # Not resolved: a venv's Python is a link, and its place is what makes it the venv's.
        shared["SERVE_PYTHON"] = str(python_of(plan.image.removeprefix("envs/")).absolute())
    if "OVERLAY_MOUNTS" in plan.bindings:
        shared["OVERLAY_MOUNTS"] = "\n".join(_overlay_mounts(plan, proofs.patch_folder))
    if "EVAL_PYTHON" in plan.bindings:
        shared["EVAL_PYTHON"] = str(python_of("eval").absolute())
        shared["TASK_DIR"] = str(attempt.absolute() / "client" / "task")
    files = {receipt["node"]: receipt.get("target", "") for receipt in proofs.image}
    key = cache_key(proofs)
    every = []
    # A rank's holder adds what only its node knows: its address, and a scratch folder of its own.
    for rank, node in enumerate(nodes):
        folder = attempt.absolute() / f"rank{rank}"
        cache = Path(plan.cache_root, key, f"rank{rank}") if plan.cache_root else folder / "cache"
        own = {"NODE": node, "RANK_DIR": str(folder), "IMAGE_FILE": files[node]}
        every.append(shared | own | {"CACHE_DIR": str(cache.absolute())})
    return every


def cache_key(proofs: Proofs) -> str:
    """What compiled code belongs to: the image, and the patches over it."""
    return digest([proofs.image[0]["digest"], proofs.patches[0]["digest"]])[:16]


def weights_folder(values: Mapping[str, str]) -> Path:
    """Where the model's weights are on a node, from the names' values."""
    return Path(f"{values['WEIGHTS_MOUNT']}{values['WEIGHTS_PATH']}")


def _model(receipt: dict[str, Any]) -> tuple[str, str]:
    """(folder to mount, the model's place in it with a slash before it, or nothing)."""
    mount, folder = Path(receipt["mount"]), Path(receipt["folder"])
    inner = folder.relative_to(mount)
    return str(mount.absolute()), "" if inner == Path() else f"/{inner}"


def _overlay_mounts(plan: Plan, folder: Path) -> list[str]:
    """Words that mount the patched files; only now is it known where the image has its own."""
    overlay = read_json(folder / "overlay.json")
    mount = RUNTIMES[plan.runtime].mount
    return [word for pair in mounts(overlay, folder) for word in mount(*pair)]
