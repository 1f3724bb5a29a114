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
    (tmp_path / "one.patch").write_text(DIFF, encoding="utf-8")
    sha = hashlib.sha256(DIFF.encode()).hexdigest()
    (tmp_path / "series.yaml").write_text(SERIES.format(sha=sha), encoding="utf-8")
    command = [sys.executable, str(BASE / "scripts/patch_check.py"), "--json"]
    command += ["--packages", str(tmp_path / "packages"), "--patches", str(tmp_path)]
    command += ["--offline", str(tmp_path), "--cache", str(tmp_path / "cache")]
    env = os.environ | {"PYTHONPATH": str(BASE / "scripts")}
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert json.loads(result.stdout)[0]["status"] == status
    assert result.returncode == code
