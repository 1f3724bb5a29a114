"""Build a patch set into one folder that ranks can read, and check it against installed software."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from serve_repro.documents import write_json
from serve_repro.errors import UserError
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
                "superseded_by": patch.superseded_by,
                "processes": patch.processes,
            }
            for patch in patches
        ],
    }
    shutil.rmtree(target / "hooks", ignore_errors=True)
    shutil.copytree(folder / "hooks", target / "hooks", ignore=shutil.ignore_patterns("__pycache__"))
    write_json(target / "set.json", built)
    return built


def check_targets(built: dict[str, Any], packages: Path, node: str) -> list[dict[str, str]]:
    """Compare each hook's target with the software on a node.

    Args:
        built: a patch set (set.json).
        packages: the site-packages folder that serves.
        node: the node's name, for the message.

    Returns:
        One {patch, module, sha256} a target.

    Raises:
        UserError: a target that is missing or has other contents, targets of different versions, or
            software that has its own remedy.
    """
    return [
        {"patch": hook["id"], "module": module, "sha256": found}
        for hook in built["hooks"]
        for module, found in _checked(hook, packages, node).items()
    ]


def _checked(hook: dict[str, Any], packages: Path, node: str) -> dict[str, str]:
    """{module: its hash} of one hook's targets, if the hook is for what is installed."""
    own = hook["superseded_by"]
    if own and _source(own, packages).is_file():
        raise UserError(
            f"the patch {hook['id']} is not needed: this software has its own remedy, {own}",
            where=f"node {node}: {_source(own, packages)}",
            remedy="take the patch out of the recipe",
        )
    seen, versions = {}, []
    for target in hook["targets"]:
        path = _source(target["module"], packages)
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        fits = {version for version, sha256 in target["sha256"].items() if sha256 == found}
        if not fits:
            raise UserError(
                f"the patch {hook['id']} was written for another {target['module']}",
                where=f"node {node}: {path}",
                expected=" or ".join(f"sha256 {sha} ({of})" for of, sha in target["sha256"].items()),
                found=found,
                remedy="see whether the patch is still needed; then update patches/series.yaml",
            )
        seen[target["module"]] = found
        versions.append(fits)
    if not set.intersection(*versions):
        of = zip(seen, map(sorted, versions), strict=True)
        raise UserError(
            f"the targets of the patch {hook['id']} are of different versions",
            where=f"node {node}: {packages}",
            expected="all of one version",
            found="; ".join(f"{module}: {' or '.join(names)}" for module, names in of),
            remedy="install the serving software anew",
        )
    return seen


def _source(module: str, packages: Path) -> Path:
    """Where a module's source would be, found as the hooks' loader finds it."""
    base = packages / Path(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
