"""The patch check as a person runs it: one line a patch, and an exit status."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BASE = Path(__file__).parents[2]
DIFF = "diff --git a/pkg/a.py b/pkg/a.py\n--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1 +1 @@\n-old\n+new\n"
SERIES = """patches:
  - id: one
    kind: diff
    why: it is a test
    upstream: null
    versions: [pkg 1]
    url: https://example.org/one.patch
    sha256: {sha}
    expires: 2030-01-01
"""


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("old\n", "applies", 0),
        ("new\n", "upstream already", 1),
        ("other\n", "does not match", 1),
        (None, "not for this software", 1),
    ],
)
def test_each_state_has_its_words(tmp_path: Path, text: str | None, status: str, code: int) -> None:
    (tmp_path / "packages/pkg").mkdir(parents=True)
    if text is not None:
        (tmp_path / "packages/pkg/a.py").write_text(text, encoding="utf-8")
    assert check(tmp_path, DIFF) == ([status], code)


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("old\n", "applies", 0),
        ("new\n", "upstream already", 1),
        ("other\n", "does not match", 1),
        (None, "not for this software", 1),
    ],
)
def test_a_script_is_tried_on_copies(tmp_path: Path, text: str | None, status: str, code: int) -> None:
    (tmp_path / "packages/pkg").mkdir(parents=True)
    if text is not None:
        (tmp_path / "packages/pkg/a.py").write_text(text, encoding="utf-8")
    script = "grep -q other pkg/a.py && exit 1; sed -i s/old/new/ pkg/a.py"
    assert check(tmp_path, script, "kind: script\n    files: [pkg/a.py]") == ([status], code)
    if text is not None:
        assert (tmp_path / "packages/pkg/a.py").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("found", "status"),
    [("3.7.0+rocm7", "applies"), ("3.8.0", "does not match"), (None, "not for this software")],
)
def test_a_version_is_compared_without_its_local_part(
    tmp_path: Path, found: str | None, status: str
) -> None:
    (tmp_path / "packages").mkdir()
    if found is not None:
        info = tmp_path / f"packages/triton-{found}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {found}\n")
    kind = "kind: version\n    distribution: triton\n    version: 3.7.0"
    assert check(tmp_path, "", kind, addressed=False)[0] == [status]


def check(
    folder: Path, text: str, kind: str = "kind: diff", addressed: bool = True
) -> tuple[list[str], int]:
    """(states, exit code) of a series of one patch, against <folder>/packages."""
    (folder / "one.patch").write_text(text, encoding="utf-8")
    series = SERIES.format(sha=hashlib.sha256(text.encode()).hexdigest())
    if not addressed:
        lines = series.splitlines(keepends=True)
        series = "".join(line for line in lines if "url:" not in line and "sha256:" not in line)
    (folder / "series.yaml").write_text(series.replace("kind: diff", kind), encoding="utf-8")
    return run(folder, "--packages", str(folder / "packages"))


def run(folder: Path, *words: str) -> tuple[list[str], int]:
    """(states, exit code) of the program, with <folder>/series.yaml and its files."""
    command = [sys.executable, str(BASE / "scripts/patch_check.py"), "--json", *words]
    command += ["--patches", str(folder), "--offline", str(folder), "--cache", str(folder / "cache")]
    env = os.environ | {"PYTHONPATH": str(BASE / "scripts")}
    result = subprocess.run(command, env=env, cwd=BASE, capture_output=True, text=True, check=False)
    return [row["status"] for row in json.loads(result.stdout)], result.returncode
