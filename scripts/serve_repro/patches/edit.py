"""Others' scripts that edit installed files: run on copies, held to the files that they declare."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import string
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from serve_repro.documents import file_sha256
from serve_repro.errors import UserError
from serve_repro.patches.apply import Change

LIMIT_S = 600.0
TOLD_LINES = 10

WITHHELD = ("patch", "pip", "pip3", "curl", "wget")
"""Programs that a script does not find: patch applies with fuzz, the others bring unpinned files."""

_NOTHING = '#!/bin/sh\necho "$(basename "$0") is withheld from patch scripts" >&2\nexit 1\n'
_PYTHON = """#!/bin/sh
case "$1 $2" in "-m pip") echo "pip is withheld from patch scripts" >&2; exit 1 ;; esac
exec '{python}' "$@"
"""


class NothingToDo(UserError):
    """A script that left every one of its files as it was."""


def edit(script: Path, entry: dict[str, Any], originals: Path, overlay: Path) -> list[Change]:
    """Run a script on copies of the files that it declares; what it makes of them goes to `overlay`.

    The script runs with bash in the folder of the copies, which is first on PYTHONPATH: it finds a
    package there as it would in the image. `${WORK}` in a variable stands for a folder of its own.

    Args:
        script: the fetched file.
        entry: {id, files, reads, env, failure} of the patch set.
        originals: the image's files.
        overlay: changed files so far: they are what it gets, and what it changes.

    Returns:
        One change a declared file.

    Raises:
        UserError: it failed, or changed another set of files than declared; `overlay` is as before.
    """
    with tempfile.TemporaryDirectory(prefix="serve-repro-edit-") as name:
        work = Path(name)
        packages = work / "packages"
        wanted = [*entry["files"], *entry.get("reads", [])]
        tops = {path.split("/")[0] for path in wanted}
        for path in [*wanted, *(f"{top}/__init__.py" for top in tops)]:
            source = overlay / path if (overlay / path).is_file() else originals / path
            if source.is_file():
                (packages / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, packages / path)
            elif path in wanted:
                raise UserError(
                    f"a file that the script of {entry['id']} needs is missing",
                    where=str(script),
                    expected=path,
                    remedy="see which software the patch is for (versions in patches/series.yaml)",
                )
        before = _hashes(packages)
        _run(script, entry, work, packages)
        after = _hashes(packages)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        _require_declared(changed, set(after), entry, str(script))
        for path in entry["files"]:
            (overlay / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(packages / path, overlay / path)
        return [Change(path, before[path], after[path]) for path in entry["files"]]


def _hashes(folder: Path) -> dict[str, str]:
    """{path: sha256} of all files but compiled ones."""
    return {
        str(path.relative_to(folder)): file_sha256(path)
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


def _run(script: Path, entry: dict[str, Any], work: Path, packages: Path) -> None:
    programs, own = work / "bin", work / "own"
    programs.mkdir()
    own.mkdir()
    texts = dict.fromkeys(WITHHELD, _NOTHING)
    texts |= dict.fromkeys(("python", "python3"), _PYTHON.format(python=sys.executable))
    for name, text in texts.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    given = {
        key: string.Template(value).substitute(WORK=own)
        for key, value in (entry.get("env") or {}).items()
    }
    env = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(own),
        "TMPDIR": str(own),
        "LC_ALL": "C",
        "PYTHONPATH": str(packages),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_NO_INDEX": "1",
        # git looks for a repository around the copies, and would leave files outside of it alone.
        "GIT_CEILING_DIRECTORIES": str(work.resolve()),
        **given,
    }
    process = subprocess.Popen(
        ["bash", str(script.absolute())],
        cwd=packages,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"the script of {entry['id']} is still running after {LIMIT_S:.0f} s", where=str(script)
        ) from error
    finally:
        # Whatever it started in the background ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = said.splitlines()
    failure = entry.get("failure")
    bad = [line for line in lines if failure and failure in line]
    if process.returncode or bad:
        raise UserError(
            f"the script of {entry['id']} failed",
            where=str(script),
            expected="exit code 0" + (f", and no line with {failure!r}" if failure else ""),
            found=f"exit code {process.returncode}: " + " | ".join(bad or lines[-TOLD_LINES:]),
        )


def _require_declared(changed: set[str], left: set[str], entry: dict[str, Any], where: str) -> None:
    declared = set(entry["files"])
    if changed - declared:
        raise UserError(
            f"the script of {entry['id']} changed files that it does not declare",
            where=where,
            expected=f"only {', '.join(sorted(declared))}",
            found=", ".join(sorted(changed - declared)),
            remedy="read the script; then list them under files in patches/series.yaml",
        )
    if declared - left:
        raise UserError(
            f"the script of {entry['id']} removed files, and an overlay cannot",
            where=where,
            found=", ".join(sorted(declared - left)),
            remedy="use an image that has the patch",
        )
    if declared - changed:
        error = UserError if changed else NothingToDo
        raise error(
            f"the script of {entry['id']} left files unchanged that it is there to change",
            where=where,
            found=", ".join(sorted(declared - changed)),
            remedy="the software may have these changes already: see whether the patch is needed",
        )
