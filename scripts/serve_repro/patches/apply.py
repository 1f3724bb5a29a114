"""Apply others' diffs to installed software: exactly or not at all, into a folder of its own.

git apply does the work: it knows no fuzz. It may find a hunk at other line numbers when every line
of context is the same; that is accepted, and told.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from serve_repro.documents import file_sha256
from serve_repro.errors import UserError

HEADER = re.compile(r"^diff --git a/(\S+) b/(\S+)$", re.MULTILINE)
HUNK = re.compile(r"^@@ -.*$", re.MULTILINE)
ALREADY = "the software has this patch already"


@dataclass
class FileDiff:
    """The part of a diff that changes one file."""

    path: str
    head: str
    hunks: list[str]

    def text(self) -> str:
        """As a diff of its own."""
        return self.head + "".join(self.hunks)

    def needs_file(self) -> bool:
        """Whether the file must be there before."""
        return "\nnew file mode " not in self.head


@dataclass
class Change:
    """A file before and after; None: it does not exist."""

    path: str
    before: str | None
    after: str | None


@dataclass
class Applied:
    """What a diff did."""

    changes: list[Change] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    """Hunks found at other line numbers, in git's words."""
    skipped: list[str] = field(default_factory=list)
    """Files of tests/, which no installed package has."""


def files_of(text: str, where: str) -> list[FileDiff]:
    """The diff's files in its order.

    Raises:
        UserError: no file in it, a rename, or a path that leaves the folder.
    """
    headers = list(HEADER.finditer(text))
    if not headers:
        raise UserError("this is no diff in git's format", where=where)
    ends = [header.start() for header in headers[1:]] + [len(text)]
    files = []
    for header, end in zip(headers, ends, strict=True):
        old, path = header.groups()
        if old != path:
            raise UserError(f"renames are not supported: {old} to {path}", where=where)
        if ".." in PurePosixPath(path).parts or path.startswith("/"):
            raise UserError(f"the path {path} leaves the package folder", where=where)
        part = text[header.start() : end]
        starts = [hunk.start() for hunk in HUNK.finditer(part)]
        bounds = [*starts, len(part)]
        hunks = [part[a:b] for a, b in itertools.pairwise(bounds)]
        files.append(FileDiff(path, part[: bounds[0]], hunks))
    return files


def serves(path: str) -> bool:
    """Whether a diff's file is one that an installed package can have; its tests are not."""
    return PurePosixPath(path).parts[0] != "tests"


def apply(diff: Path, packages: Path, overlay: Path) -> Applied:
    """Apply a diff to `packages`, writing only changed and new files, to `overlay`.

    A file that is in `overlay` already is changed there, so that diffs stack. A deletion stands in
    the result only (after: None). On any failure `overlay` is left as it was.

    Raises:
        UserError: the diff does not apply exactly; says why and where.
    """
    files = files_of(diff.read_text(encoding="utf-8"), str(diff))
    wanted = [part for part in files if serves(part.path)]
    done = Applied(skipped=[part.path for part in files if part not in wanted])
    if not wanted:
        return done
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for path in {part.path for part in wanted}:
            source = overlay / path if (overlay / path).is_file() else packages / path
            if source.is_file():
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy / path)
        paths = list(dict.fromkeys(part.path for part in wanted))
        before = {path: _hash(copy / path) for path in paths}
        code, told = _git_apply("".join(part.text() for part in wanted), copy, "--verbose")
        if code:
            raise _refusal(wanted, copy, str(diff), told)
        done.offsets = [line.strip() for line in told.splitlines() if "offset" in line]
        for path in paths:
            done.changes.append(Change(path, before[path], _hash(copy / path)))
        for path in paths:
            target = overlay / path
            if (copy / path).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(copy / path, target)
            else:
                target.unlink(missing_ok=True)
    return done


def _hash(path: Path) -> str | None:
    return file_sha256(path) if path.is_file() else None


def _git_apply(text: str, folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and messages. Neither a repository around the folder nor settings may matter."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    command = ["git", "apply", "-p1", "--whitespace=nowarn", *options]
    result = subprocess.run(
        command, cwd=folder, env=env, input=text.encode(), capture_output=True, check=False
    )
    return result.returncode, result.stderr.decode(errors="replace")


def _refusal(files: list[FileDiff], copy: Path, where: str, told: str) -> UserError:
    """Why a diff does not apply: looks at each hunk alone, forwards and backwards."""
    fresh, already, neither = [], [], []
    for part in files:
        if part.needs_file() and not (copy / part.path).is_file():
            return UserError(
                "a file that the diff changes is missing",
                where=where,
                expected=part.path,
                remedy="see which software the patch is for (versions in patches/series.yaml)",
            )
        for hunk in part.hunks:
            label = f"{part.path} {hunk.splitlines()[0]}"
            if _git_apply(part.head + hunk, copy, "--check")[0] == 0:
                fresh.append(label)
            elif _git_apply(part.head + hunk, copy, "--check", "--reverse")[0] == 0:
                already.append(label)
            else:
                neither.append(label)
    if neither:
        return UserError(
            "the source differs from what the diff was written for",
            where=where,
            found="no exact match for " + "; ".join(neither),
            remedy="use the software that the patch is for, or another version of the patch",
        )
    if already and not fresh:
        return UserError(
            ALREADY,
            where=where,
            remedy="remove it from the recipe",
        )
    if already:
        return UserError(
            "the software has a part of this patch already",
            where=where,
            found=f"applied: {'; '.join(already)}; not applied: {'; '.join(fresh)}",
            remedy="install the software afresh",
        )
    return UserError("the diff cannot be applied", where=where, found=told.strip())
