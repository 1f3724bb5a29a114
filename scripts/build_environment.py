"""Build one pinned Python environment of envs/, or adopt one that is already exactly right."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from serve_repro import program
from serve_repro.documents import write_json
from serve_repro.errors import UserError
from serve_repro.image import environment


def main(arguments: argparse.Namespace) -> None:
    """envs/<name> -> .envs/<name> with a proof of what is in it."""
    folder: Path = arguments.definition
    target: Path = arguments.output.parent
    python = target / "bin" / "python"
    if not _is_right(folder, python):
        _build(folder, target, python)
    found = environment.inspect(python)
    wrong = environment.differences(folder, found["distributions"])
    if wrong:
        raise UserError(
            "the environment is not what its lock says", where=str(target), found="; ".join(wrong)
        )
    write_json(arguments.output, environment.description(folder.name, folder, found))


def _is_right(folder: Path, python: Path) -> bool:
    """Whether someone (conda, an earlier run) has built it already."""
    if not python.exists():
        return False
    try:
        found = environment.inspect(python)
    except UserError:
        return False
    wrong = environment.differences(folder, found["distributions"])
    program.LOGGER.info(
        "%s: %s", python.parent.parent, "as its lock says" if not wrong else f"stale ({wrong[0]})"
    )
    return not wrong


def _build(folder: Path, target: Path, python: Path) -> None:
    program.LOGGER.info("building %s (the packages are downloaded; this takes a minute or two)", target)
    shutil.rmtree(target, ignore_errors=True)
    venv.create(target, with_pip=True)
    # Locks are complete, so nothing is resolved here, and nothing unpinned can slip in.
    for lock in environment.lock_files(folder):
        _install_lock(python, lock)
    for package in environment.local_packages(folder):
        if _pip(python, ["--no-deps", "--no-build-isolation", str(package)]):
            raise _failed(package)


def _install_lock(python: Path, lock: Path) -> None:
    words = ["--no-deps", "--requirement", str(lock)]
    index = environment.fallback_index(lock)
    if _pip(python, words) and (index is None or _pip(python, [*words, "--extra-index-url", index])):
        raise _failed(lock)


def _pip(python: Path, words: list[str]) -> int:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", *words]
    program.LOGGER.info("%s", " ".join(command))
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode


def _failed(what: Path) -> UserError:
    return UserError("pip could not install this; its message stands above", where=str(what))


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--definition", type=Path, required=True, help="folder envs/<name>")
    parser.add_argument("--output", type=Path, required=True, help=".envs/<name>/environment.json")
    program.run(main, parser.parse_args())
