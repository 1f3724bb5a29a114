"""Diffs of others: applied exactly or not at all, each reason told apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.patches.apply import Change, apply

LINES = [f"line {number}\n" for number in range(1, 21)]
NEW = """diff --git a/pkg/new.py b/pkg/new.py
new file mode 100644
--- /dev/null
+++ b/pkg/new.py
@@ -0,0 +1 @@
+new
"""
DIFF = """From: somebody

diff --git a/pkg/a.py b/pkg/a.py
--- a/pkg/a.py
+++ b/pkg/a.py
@@ -2,3 +2,3 @@
 line 2
-line 3
+LINE 3
 line 4
@@ -15,3 +15,3 @@
 line 15
-line 16
+LINE 16
 line 17
diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1 +1 @@
-gone
+there
"""


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def changed(*numbers: int) -> str:
    return "".join(x.upper() if n in numbers else x for n, x in enumerate(LINES, 1))


@pytest.fixture
def diff(tmp_path: Path) -> Path:
    (tmp_path / "a.patch").write_text(DIFF, encoding="utf-8")
    return tmp_path / "a.patch"


def installed(tmp_path: Path, text: str) -> Path:
    (tmp_path / "packages/pkg").mkdir(parents=True)
    (tmp_path / "packages/pkg/a.py").write_text(text, encoding="utf-8")
    return tmp_path / "packages"


def test_a_diff_applies_into_the_overlay_only(diff: Path, tmp_path: Path) -> None:
    packages = installed(tmp_path, changed())
    done = apply(diff, packages, tmp_path / "overlay")
    assert done.changes == [Change("pkg/a.py", sha(changed()), sha(changed(3, 16)))]
    assert done.skipped == ["tests/test_a.py"]
    assert done.offsets == []
    assert (tmp_path / "overlay/pkg/a.py").read_text(encoding="utf-8") == changed(3, 16)
    assert (packages / "pkg/a.py").read_text(encoding="utf-8") == changed()


def test_other_line_numbers_are_accepted_and_told(diff: Path, tmp_path: Path) -> None:
    done = apply(diff, installed(tmp_path, "first\n" + changed()), tmp_path / "overlay")
    assert len(done.offsets) == 2


def test_a_new_file_and_a_deletion(tmp_path: Path) -> None:
    packages = installed(tmp_path, "old\n")
    gone = "diff --git a/pkg/a.py b/pkg/a.py\ndeleted file mode 100644\n--- a/pkg/a.py\n+++ /dev/null\n"
    (tmp_path / "a.patch").write_text(NEW + gone + "@@ -1 +0,0 @@\n-old\n", encoding="utf-8")
    done = apply(tmp_path / "a.patch", packages, tmp_path / "overlay")
    assert done.changes == [
        Change("pkg/new.py", None, sha("new\n")),
        Change("pkg/a.py", sha("old\n"), None),
    ]
    assert (tmp_path / "overlay/pkg/new.py").read_text(encoding="utf-8") == "new\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (changed(4), "no exact match for pkg/a.py @@ -2,3 +2,3 @@"),
        (changed(3, 16), "has this patch already\n  to do:    remove it from the recipe"),
        (changed(3), "applied: pkg/a.py @@ -2,3 +2,3 @@; not applied: pkg/a.py @@ -15,3 +15,3 @@"),
    ],
)
def test_each_refusal_is_told_apart_and_leaves_nothing(
    diff: Path, tmp_path: Path, text: str, told: str
) -> None:
    packages = installed(tmp_path, text)
    with pytest.raises(UserError) as error:
        apply(diff, packages, tmp_path / "overlay")
    assert told in str(error.value)
    assert not (tmp_path / "overlay").exists()
    assert (packages / "pkg/a.py").read_text(encoding="utf-8") == text


def test_a_missing_file_leaves_nothing_either(diff: Path, tmp_path: Path) -> None:
    diff.write_text(NEW + DIFF, encoding="utf-8")
    with pytest.raises(UserError, match=r"is missing\n  expected: pkg/a\.py"):
        apply(diff, tmp_path, tmp_path / "overlay")
    assert not (tmp_path / "overlay").exists()
