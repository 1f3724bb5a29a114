"""Build a patch set into one folder that ranks can read, and check it against installed software."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve_repro.documents import file_sha256, write_json
from serve_repro.errors import UserError
from serve_repro.image.inside import Source
from serve_repro.patches.series import Patch, content_sha256, set_id, what_it_does


def build(
    patches: list[Patch], folder: Path, target: Path, fetched: Mapping[str, Path] | None = None
) -> dict[str, Any]:
    """Copy hooks and others' files to `target`, and write `target`/set.json; returns the set.

    A running server reads the copy, so an edit of patches/ cannot reach a measurement under way.

    Args:
        patches: the recipe's, in order.
        folder: patches/.
        target: where to build.
        fetched: the file of each patch that has an address, by id.
    """
    hooks = [patch for patch in patches if patch.kind == "hook"]
    versions = [patch for patch in patches if patch.kind == "version"]
    others = [patch for patch in patches if patch.url is not None]
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
            for patch in hooks
        ],
        "others": [{**what_it_does(patch), "file": f"sources/{patch.id}"} for patch in others],
        "versions": [what_it_does(patch) for patch in versions],
    }
    shutil.rmtree(target / "hooks", ignore_errors=True)
    shutil.copytree(folder / "hooks", target / "hooks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(target / "sources", ignore_errors=True)
    for patch in others:
        (target / "sources").mkdir(exist_ok=True)
        shutil.copyfile((fetched or {})[patch.id], target / "sources" / patch.id)
    write_json(target / "set.json", built)
    return built


def target_modules(built: dict[str, Any]) -> list[str]:
    """The modules whose sources decide whether a set's hooks fit."""
    hooks = built["hooks"]
    targets = {target["module"] for hook in hooks for target in hook["targets"]}
    return sorted(targets | {hook["superseded_by"] for hook in hooks if hook["superseded_by"]})


def check_targets(built: dict[str, Any], packages: Path, node: str) -> list[dict[str, str]]:
    """Compare each hook's target with a folder of installed packages; else as `compare_targets`."""
    found = {}
    for module in target_modules(built):
        path = packages / path_of(module, packages)
        found[module] = Source(str(path), file_sha256(path) if path.is_file() else None)
    return compare_targets(built, found, node)


def path_of(module: str, packages: Path) -> Path:
    """A module's source below a folder of packages, as the hooks' loader looks for it."""
    base = Path(*module.split("."))
    return base / "__init__.py" if (packages / base).is_dir() else base.with_suffix(".py")


def compare_targets(
    built: dict[str, Any], found: Mapping[str, Source], node: str
) -> list[dict[str, str]]:
    """Compare each hook's target with the software on a node.

    Args:
        built: a patch set (set.json).
        found: the source of each of `target_modules`, as the ranks on the node will find it.
        node: the node's name, for the message.

    Returns:
        One {patch, module, sha256} a target.

    Raises:
        UserError: a target that is missing or has other contents, targets of different versions, or
            software that has its own remedy.
    """
    return [
        {"patch": hook["id"], "module": module, "sha256": sha256}
        for hook in built["hooks"]
        for module, sha256 in _checked(hook, found, node).items()
    ]


def _checked(hook: dict[str, Any], found: Mapping[str, Source], node: str) -> dict[str, str]:
    """{module: its hash} of one hook's targets, if the hook is for what is installed."""
    own = hook["superseded_by"]
    if own and found[own].sha256:
        raise UserError(
            f"the patch {hook['id']} is not needed: this software has its own remedy, {own}",
            where=f"node {node}: {found[own].path}",
            remedy="take the patch out of the recipe",
        )
    seen, versions = {}, []
    for target in hook["targets"]:
        source = found[target["module"]]
        fits = {version for version, sha256 in target["sha256"].items() if sha256 == source.sha256}
        if source.sha256 is None or not fits:
            raise UserError(
                f"the patch {hook['id']} was written for another {target['module']}",
                where=f"node {node}: {source.path}",
                expected=" or ".join(f"sha256 {sha} ({of})" for of, sha in target["sha256"].items()),
                found=source.sha256 or "no file",
                remedy="see whether the patch is still needed; then update patches/series.yaml",
            )
        seen[target["module"]] = source.sha256
        versions.append(fits)
    if not set.intersection(*versions):
        of = zip(seen, map(sorted, versions), strict=True)
        raise UserError(
            f"the targets of the patch {hook['id']} are of different versions",
            where=f"node {node}: {found[next(iter(seen))].path}",
            expected="all of one version",
            found="; ".join(f"{module}: {' or '.join(names)}" for module, names in of),
            remedy="install the serving software anew",
        )
    return seen
