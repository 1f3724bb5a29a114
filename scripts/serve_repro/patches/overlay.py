"""Others' patches applied to the image's own files: what comes out is laid over the image."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_repro.documents import digest, file_sha256
from serve_repro.errors import UserError
from serve_repro.patches.apply import Change, apply, files_of, serves
from serve_repro.patches.edit import edit
from serve_repro.patches.gemm_table import TABLE, TABLE_VARIABLE, TABLES

FILES = "overlay"
"""Folder of the changed files, beside set.json."""

PROCESSES = ["worker", "engine", "api"]
"""The processes of vLLM that must say of each patch that they run with it: all."""


def needed_files(built: dict[str, Any], folder: Path) -> tuple[list[str], list[str]]:
    """(paths, patterns) of the image's files that a set's patches start from.

    Args:
        built: the patch set (set.json).
        folder: where it was built.

    Raises:
        UserError: a diff that is none.
    """
    paths: list[str] = []
    patterns: list[str] = []
    for other in built["others"]:
        if other["kind"] == "diff":
            text = (folder / other["file"]).read_text(encoding="utf-8")
            paths += [part.path for part in files_of(text, other["id"]) if serves(part.path)]
        elif other["kind"] == "script":
            # A script finds a package by its __init__.py.
            own = [*other["files"], *other.get("reads", [])]
            paths += [*own, *sorted({f"{path.split('/')[0]}/__init__.py" for path in own})]
        elif "table" in other:
            patterns += TABLES
        else:
            paths.append(other["path"])
    return list(dict.fromkeys(paths)), list(dict.fromkeys(patterns))


def lay(built: dict[str, Any], folder: Path, originals: dict[str, Any]) -> dict[str, Any]:
    """Apply a set's patches in their order, into `folder`/overlay; returns the overlay's document.

    Args:
        built: the patch set (set.json).
        folder: where it was built, and where originals/ is.
        originals: what was taken from the image (originals.json).

    Returns:
        {id, image, roots, files: [{path, before, after, patches}], patches: [{id, processes, files,
        table, version, offsets}]}. `patches` has one entry for each patch that is no hook; its
        processes must say that they run with these files, this table, this version.

    Raises:
        UserError: a patch that does not apply exactly; nothing is left of an overlay then.
    """
    target = folder / FILES
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        patches, touched = _apply_all(built, folder, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    files = [
        {
            "path": path,
            "before": originals["files"].get(path),
            "after": file_sha256(target / path),
            "patches": ids,
        }
        for path, ids in sorted(touched.items())
    ]
    _require_packages(files, originals)
    after = {file["path"]: file["after"] for file in files}
    for patch in patches:
        patch["files"] = [{"path": path, "sha256": after[path]} for path in patch["files"]]
    patches += [{**_claim(entry["id"]), "version": entry} for entry in built["versions"]]
    overlay = {
        "set": built["id"],
        "image": originals["image"],
        "roots": originals["roots"],
        "files": files,
        "patches": patches,
    }
    # Roots are no part of the identity: where a checkout lies must not matter.
    return {"id": digest([built["id"], files, patches]), **overlay}


def _claim(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "processes": PROCESSES,
        "files": [],
        "table": None,
        "version": None,
        "offsets": [],
    }


def _apply_all(
    built: dict[str, Any], folder: Path, target: Path
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Each patch's entry, and {path: ids of the patches that changed it}."""
    patches, touched = [], dict[str, list[str]]()
    for other in built["others"]:
        entry = _claim(other["id"])
        changes, entry["offsets"] = _KINDS[other["kind"]](other, folder, target)
        for change in changes:
            if change.after is None:
                raise UserError(
                    f"the patch {other['id']} deletes {change.path}, and an overlay cannot",
                    where=str(folder / other["file"]),
                    remedy="use an image that has the patch",
                )
            touched.setdefault(change.path, []).append(other["id"])
            entry["files"].append(change.path)
        if "table" in other:
            merged = folder / TABLE
            entry["table"] = {"variable": TABLE_VARIABLE, "sha256": file_sha256(merged)}
        patches.append(entry)
    return patches, touched


def _diff(other: dict[str, Any], folder: Path, target: Path) -> tuple[list[Change], list[str]]:
    done = apply(folder / other["file"], folder / "originals", target)
    return done.changes, done.offsets


def _script(other: dict[str, Any], folder: Path, target: Path) -> tuple[list[Change], list[str]]:
    return edit(folder / other["file"], other, folder / "originals", target), []


def _data(other: dict[str, Any], folder: Path, target: Path) -> tuple[list[Change], list[str]]:
    if "table" in other:
        return [], []
    path = target / other["path"]
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / other["file"], path)
    return [Change(other["path"], None, file_sha256(path))], []


_KINDS: dict[str, Callable[[dict[str, Any], Path, Path], tuple[list[Change], list[str]]]] = {
    "diff": _diff,
    "script": _script,
    "data": _data,
}


def _require_packages(files: list[dict[str, Any]], originals: dict[str, Any]) -> None:
    for file in files:
        top = file["path"].split("/")[0]
        if originals["roots"].get(top) is None:
            raise UserError(
                f"the image has no package {top}",
                where=originals["image"],
                expected=file["path"],
                remedy="see which software the patches are for (versions in patches/series.yaml)",
            )


def mounts(overlay: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """(file, place in the image) of each file that a container gets in place of its own."""
    return [
        (
            str(folder.absolute() / FILES / file["path"]),
            f"{overlay['roots'][file['path'].split('/')[0]]}/{file['path']}",
        )
        for file in overlay["files"]
    ]


def lay_view(overlay: dict[str, Any], folder: Path, target: Path) -> None:
    """Without containers: a folder that holds each patched package, as links but for what is changed.

    Put before all else on PYTHONPATH, it is what Python imports; installed files are not touched.

    Args:
        overlay: overlay.json.
        folder: where it lies.
        target: the folder to make.
    """
    tree: dict[str, Any] = {}
    for file in overlay["files"]:
        *parents, name = file["path"].split("/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = folder / FILES / file["path"]
    target.mkdir(parents=True)
    for top, changed in tree.items():
        _link(Path(overlay["roots"][top]) / top, target / top, changed)


def _link(source: Path, target: Path, changed: dict[str, Any]) -> None:
    target.mkdir()
    own = {*changed, "__pycache__"}
    for entry in source.iterdir() if source.is_dir() else []:
        if entry.name not in own:
            (target / entry.name).symlink_to(entry.absolute())
    for name, what in changed.items():
        if isinstance(what, dict):
            _link(source / name, target / name, what)
        else:
            shutil.copyfile(what, target / name)
