"""Build a patch set into one folder that ranks can read, and check it against installed software."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve_repro.documents import file_sha256, write_json
from serve_repro.errors import UserError
from serve_repro.image.inside import Source
from serve_repro.patches.series import Patch, content_sha256, set_id


def build(patches: list[Patch], folder: Path, target: Path) -> dict[str, Any]:
    """Copy the hooks into `target`/hooks and write `target`/set.json; returns the set.

    A running server reads the copy, so an edit of patches/ cannot reach a measurement under way.

    Raises:
        UserError: a kind of patch that cannot be built yet.
    """
    for patch in patches:
        if patch.kind != "hook":
            raise UserError(
                f"patches of kind {patch.kind} cannot be built by this version, only hooks",
                where=f"patches/series.yaml: {patch.id}",
                remedy="choose a recipe whose patches are hooks, or wait for the next version",
            )
    built: dict[str, Any] = {
        "id": set_id(patches, folder),
        "patches": [
            {"id": patch.id, "kind": patch.kind, "sha256": content_sha256(patch, folder)}
            for patch in patches
        ],
        "hooks": [
            {
                "id": patch.id,
                "hook": patch.hook,
                "targets": [target.model_dump() for target in patch.targets],
                "processes": patch.processes,
            }
            for patch in patches
        ],
    }
    shutil.rmtree(target / "hooks", ignore_errors=True)
    shutil.copytree(folder / "hooks", target / "hooks", ignore=shutil.ignore_patterns("__pycache__"))
    write_json(target / "set.json", built)
    return built


def target_modules(built: dict[str, Any]) -> list[str]:
    """The modules whose sources a patch set expects."""
    return sorted({target["module"] for hook in built["hooks"] for target in hook["targets"]})


def check_targets(built: dict[str, Any], packages: Path, node: str) -> list[dict[str, str]]:
    """Compare each hook's target with a folder of installed packages; else as `compare_targets`."""
    found = {}
    for module in target_modules(built):
        base = packages / Path(*module.split("."))
        # As the hooks' loader looks: a module's file, or a package's.
        path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        found[module] = Source(str(path), file_sha256(path) if path.is_file() else None)
    return compare_targets(built, found, node)


def compare_targets(
    built: dict[str, Any], found: Mapping[str, Source], node: str
) -> list[dict[str, str]]:
    """Compare each hook's target with the software on a node.

    Args:
        built: a patch set (set.json).
        found: the source of each of its modules, as the node's image has it.
        node: the node's name, for the message.

    Returns:
        One {patch, module, sha256} a target.

    Raises:
        UserError: a target that is missing or has other contents.
    """
    seen = []
    for hook in built["hooks"]:
        for target in hook["targets"]:
            source = found[target["module"]]
            if source.sha256 != target["sha256"]:
                raise UserError(
                    f"the patch {hook['id']} was written for another {target['module']}",
                    where=f"node {node}: {source.path}",
                    expected=f"sha256 {target['sha256']}",
                    found=source.sha256 or "no file",
                    remedy="see whether the patch is still needed; then update patches/series.yaml",
                )
            seen.append({"patch": hook["id"], "module": target["module"], "sha256": target["sha256"]})
    return seen
