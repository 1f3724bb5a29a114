"""One node's proof that an overlay lies over the very files that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve_repro.documents import file_sha256
from serve_repro.errors import UserError
from serve_repro.image.inside import Source
from serve_repro.image.software import Software
from serve_repro.patches.gemm_table import TABLE
from serve_repro.patches.overlay import FILES


def check_overlay(
    overlay: dict[str, Any], built: dict[str, Any], folder: Path, found: Software, node: str
) -> list[dict[str, Any]]:
    """Compare an overlay with this node: its image's files before, the built files after.

    Args:
        overlay: overlay.json.
        built: the patch set (set.json).
        folder: where both lie, as this node sees it.
        found: the overlay's files, and the set's distributions, in this node's image.
        node: the node's name, for messages.

    Returns:
        [{path, before, after}] as seen here, with the merged table and the versions.

    Raises:
        UserError: what differs, on which node.
    """
    if overlay["set"] != built["id"]:
        raise UserError(
            "the overlay was made from another patch set",
            where=f"node {node}: {folder / 'overlay.json'}",
            expected=built["id"],
            found=overlay["set"],
            remedy=f"make it again: snakemake {folder / 'overlay.json'} --force",
        )
    seen: list[dict[str, Any]] = []
    for file in overlay["files"]:
        top = file["path"].split("/")[0]
        before = found.files[file["path"]]
        if before != file["before"] or found.roots[top] is None:
            raise UserError(
                f"this node's image has another {file['path']} than the patches were applied to",
                where=f"node {node}: {found.roots[top] or 'no package ' + top}",
                expected=file["before"] or "no file",
                found=before or "no file",
                remedy="give all nodes the same image; then the overlay is made from it again",
            )
        after = _built(folder / FILES / file["path"], file["after"], node)
        seen.append({"path": file["path"], "before": before, "after": after})
    for patch in overlay["patches"]:
        if patch["table"]:
            after = _built(folder / TABLE, patch["table"]["sha256"], node)
            seen.append({"path": TABLE, "before": None, "after": after})
        if patch["version"]:
            seen.append(_version(patch["version"], found.versions, node))
    return seen


def _built(path: Path, expected: str, node: str) -> str:
    """The hash of a built file, if it is the one that was built."""
    found = file_sha256(path) if path.is_file() else None
    if found != expected:
        raise UserError(
            "this node does not see the patched file that was built",
            where=f"node {node}: {path}",
            expected=f"sha256 {expected}",
            found=f"sha256 {found}" if found else "no file",
            remedy="the results folder must be the same one on every node; then build the patches again",
        )
    return found


def _version(entry: dict[str, str], versions: Mapping[str, str | None], node: str) -> dict[str, Any]:
    name = entry["distribution"]
    found = versions[name]
    if found is None or found.split("+")[0] != entry["version"]:
        raise UserError(
            f"the image has another {name} than the recipe needs ({entry['id']})",
            where=f"node {node}",
            expected=f"{name} {entry['version']}",
            found=found or "not installed",
            remedy="use an image that has it; nothing is installed into a running container",
        )
    return {"distribution": name, "version": found}


def with_overlay(found: Mapping[str, Source], overlay: dict[str, Any]) -> dict[str, Source]:
    """The sources of modules as ranks find them: of a patched file, the patched one."""
    after = {file["path"]: file["after"] for file in overlay["files"]}
    laid = {}
    for module, source in found.items():
        base = module.replace(".", "/")
        own = after.get(f"{base}.py") or after.get(f"{base}/__init__.py")
        laid[module] = Source(source.path, own or source.sha256)
    return laid
