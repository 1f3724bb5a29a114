"""Whether a patch fits a folder of installed packages: tried on copies, and nothing is changed."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from serve_repro.errors import UserError
from serve_repro.patches.apply import ALREADY, apply, files_of, serves
from serve_repro.patches.bundle import check_targets
from serve_repro.patches.edit import NothingToDo, edit
from serve_repro.patches.gemm_table import TABLES, merge
from serve_repro.patches.series import Patch, what_it_does

APPLIES = "applies"
ALREADY_IN = "upstream already"
NO_MATCH = "does not match"
OTHER = "not for this software"


class Fit(NamedTuple):
    """What one patch is to the software."""

    status: str
    detail: str


def installed_versions(packages: Path) -> dict[str, str]:
    """{distribution: version} of a folder of packages."""
    return {item.metadata["Name"]: item.version for item in distributions(path=[str(packages)])}


def fit(patch: Patch, file: Path | None, packages: Path, overlay: Path, versions: dict[str, str]) -> Fit:
    """Try one patch.

    Args:
        patch: its entry.
        file: its fetched file; None for kinds without one.
        packages: the installed packages, or copies of the files that patches start from.
        overlay: what the patches before it made; what it makes is added.
        versions: {distribution: version} of what is installed.
    """
    try:
        if patch.kind == "hook":
            hook = patch.model_dump(include={"id", "targets", "superseded_by"})
            check_targets({"hooks": [hook]}, packages, "here")
            return Fit(APPLIES, "")
        if patch.kind == "version":
            return _version(patch, versions)
        assert file is not None  # the caller fetches it
        if patch.kind == "diff":
            return _diff(file, packages, overlay)
        if patch.kind == "script":
            return _script(patch, file, packages, overlay)
        return _data(patch, file, packages)
    except UserError as error:
        return Fit(NO_MATCH, str(error))


def _version(patch: Patch, versions: dict[str, str]) -> Fit:
    found = versions.get(str(patch.distribution))
    if found is None:
        return Fit(OTHER, f"{patch.distribution} is not installed")
    if found.split("+")[0] != patch.version:
        return Fit(NO_MATCH, f"{patch.distribution} {found}, expected {patch.version}")
    return Fit(APPLIES, "")


def _none_of(paths: list[str], *folders: Path) -> bool:
    return not any((folder / path).is_file() for folder in folders for path in paths)


def _diff(file: Path, packages: Path, overlay: Path) -> Fit:
    parts = files_of(file.read_text(encoding="utf-8"), str(file))
    old = [part.path for part in parts if part.needs_file() and serves(part.path)]
    if old and _none_of(old, packages, overlay):
        return Fit(OTHER, "none of its files is installed")
    try:
        apply(file, packages, overlay)
    except UserError as error:
        if error.problem != ALREADY:
            raise
        return Fit(ALREADY_IN, "")
    return Fit(APPLIES, "")


def _script(patch: Patch, file: Path, packages: Path, overlay: Path) -> Fit:
    if _none_of(patch.files, packages, overlay):
        return Fit(OTHER, "none of its files is installed")
    entry: dict[str, Any] = what_it_does(patch)
    try:
        edit(file, entry, packages, overlay)
    except NothingToDo:
        return Fit(ALREADY_IN, "it leaves every file as it is")
    return Fit(APPLIES, "")


def _data(patch: Patch, file: Path, packages: Path) -> Fit:
    if patch.path is not None:
        top = patch.path.split("/")[0]
        return Fit(APPLIES, "") if (packages / top).is_dir() else Fit(OTHER, f"no package {top}")
    tables = [table for pattern in TABLES for table in sorted(packages.glob(pattern))]
    if not tables:
        return Fit(OTHER, "there is no table of aiter's")
    report = merge(tables, [file]).report
    return Fit(APPLIES, f"{len(report['added'])} rows added, {len(report['replaced'])} replaced")
