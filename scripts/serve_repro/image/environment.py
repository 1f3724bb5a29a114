"""Pinned Python environments: what a lock asks for, what is installed, whether they agree."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from serve_repro.documents import digest, file_sha256
from serve_repro.errors import UserError

ROOT = Path(".envs")
"""Where environments are built, one folder each."""

_LIST = """
import importlib.metadata, json, platform, sysconfig
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
print(json.dumps({"distributions": found, "python": platform.python_version(),
                  "packages": sysconfig.get_path("purelib")}))
"""


def lock_files(folder: Path) -> list[Path]:
    """The locks of envs/<name>, in the order in which they are installed.

    Raises:
        UserError: there is none.
    """
    locks = sorted(folder.glob("*.txt"))
    if not locks:
        raise UserError("no such environment: it has no lock (*.txt)", where=str(folder))
    return locks


def local_packages(folder: Path) -> list[Path]:
    """Packages of our own that belong to an environment: folders with a pyproject.toml."""
    return sorted(path.parent for path in folder.glob("*/pyproject.toml"))


def requirements(folder: Path) -> list[Requirement]:
    """Every pinned requirement that applies to this Python and machine.

    Raises:
        UserError: a line that is not an exact pin.
    """
    found = []
    for lock in lock_files(folder):
        text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            line = line.split(" --hash")[0].partition("#")[0].strip()
            if not line:
                continue
            requirement = _exact(line)
            if requirement is None:
                raise UserError("a lock may hold exact pins only", where=str(lock), found=line)
            if requirement.marker is None or requirement.marker.evaluate():
                found.append(requirement)
    return found


def _exact(line: str) -> Requirement | None:
    """The requirement of a line that pins exactly one version; None for any other line."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:  # an option, a path, an include
        return None
    bounds = list(requirement.specifier)
    exact = len(bounds) == 1 and bounds[0].operator == "==" and not bounds[0].version.endswith(".*")
    return requirement if exact else None


def pins(folder: Path) -> dict[str, str]:
    """{name: version} of what an environment is to contain; comments and layout do not count."""
    return {
        normal(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in requirements(folder)
    }


def fallback_index(lock: Path) -> str | None:
    """The package index that a lock names for when its pins are not found elsewhere."""
    found = re.search(r"^# fallback-index: (\S+)$", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def lock_digest(folder: Path) -> str:
    """Identity of what an environment is to contain (sha256, hex)."""
    local = [file_sha256(path / "pyproject.toml") for path in local_packages(folder)]
    return digest([pins(folder), local])


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def python_of(name: str) -> Path:
    """The interpreter of a built environment."""
    return ROOT / name / "bin" / "python"


def inspect(python: Path) -> dict[str, Any]:
    """{distributions: {name: version}, python: version, packages: folder} of an environment.

    Raises:
        UserError: its interpreter does not run.
    """
    try:
        run = subprocess.run(
            # -I: neither the caller's folder nor PYTHONPATH may add to what is found
            [str(python), "-I", "-c", _LIST],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"the environment's Python does not run: {error}",
            where=str(python),
            remedy=f"remove {python.parent.parent} and run again; it is built anew",
        ) from error
    found: dict[str, Any] = json.loads(run.stdout)
    found["distributions"] = {normal(k): v for k, v in found["distributions"].items()}
    return found


def differences(folder: Path, installed: dict[str, str]) -> list[str]:
    """Pins that an environment does not have exactly."""
    return [
        f"{name}: expected {version}, found {installed.get(name, 'nothing')}"
        for name, version in sorted(pins(folder).items())
        if installed.get(name) != version
    ]


def description(name: str, folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """What proves an environment: its lock, its Python and every distribution in it."""
    ignored = {"pip", "wheel"}  # they built it; nothing imports them
    distributions = {k: v for k, v in sorted(found["distributions"].items()) if k not in ignored}
    proof = {
        "name": name,
        "lock_sha256": lock_digest(folder),
        "python": found["python"],
        "machine": platform.machine(),
        "distributions": distributions,
    }
    return {**proof, "digest": f"sha256:{digest(proof)}"}
