"""Overlays: what is laid over an image's files, how ranks reach it, what a node must see."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_repro.errors import UserError
from serve_repro.image.inside import Source
from serve_repro.image.software import Software
from serve_repro.patches.overlay import lay, lay_view, mounts, needed_files
from serve_repro.patches.receipt import check_overlay, with_overlay
from serve_repro.plan.bindings import fill_all
from serve_repro.runtimes import RUNTIMES

DIFF = "diff --git a/pkg/a.py b/pkg/a.py\n--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1 +1 @@\n-old\n+new\n"
NEW = (
    "diff --git a/pkg/sub/b.py b/pkg/sub/b.py\nnew file mode 100644\n--- /dev/null\n+++ b/pkg/sub/b.py\n"
)
NEW += "@@ -0,0 +1 @@\n+value = 1\n"
GONE = "diff --git a/pkg/a.py b/pkg/a.py\ndeleted file mode 100644\n--- a/pkg/a.py\n+++ /dev/null\n"
GONE += "@@ -1 +0,0 @@\n-old\n"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Set:
    """A built set, and the originals that were taken for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built: dict[str, Any] = {"id": "set", "others": [], "versions": [], "hooks": []}
        self.originals: dict[str, Any] = {"image": "sha256:i", "roots": {"pkg": "/site"}, "files": {}}
        (folder / "sources").mkdir(parents=True)
        (folder / "originals").mkdir()

    def original(self, path: str, text: str) -> None:
        place = self.folder / "originals" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        self.originals["files"][path] = sha(text)

    def add(self, name: str, text: str, kind: str = "diff", **fields: Any) -> None:
        (self.folder / "sources" / name).write_text(text, encoding="utf-8")
        self.built["others"].append({"id": name, "kind": kind, "file": f"sources/{name}", **fields})

    def lay(self) -> dict[str, Any]:
        return lay(self.built, self.folder, self.originals)

    def result(self, path: str) -> str:
        return (self.folder / "overlay" / path).read_text(encoding="utf-8")


@pytest.fixture
def made(tmp_path: Path) -> Set:
    made = Set(tmp_path / "patches")
    made.original("pkg/a.py", "old\n")
    made.original("pkg/__init__.py", "")
    return made


def test_each_file_is_listed_with_both_hashes_and_its_patches(made: Set) -> None:
    made.add("one", DIFF)
    made.add("two", DIFF.replace("+new", "+newer").replace("-old", "-new"))
    overlay = made.lay()
    assert overlay["files"] == [
        {"path": "pkg/a.py", "before": sha("old\n"), "after": sha("newer\n"), "patches": ["one", "two"]}
    ]
    # Each must tell of the file as it is in the end: that is what a process imports.
    assert [patch["files"][0]["sha256"] for patch in overlay["patches"]] == [sha("newer\n")] * 2


def test_a_new_file_has_no_hash_before_and_a_deletion_is_refused(made: Set) -> None:
    made.add("new", NEW)
    assert made.lay()["files"][0]["before"] is None
    made.add("gone", GONE)
    with pytest.raises(UserError, match=r"gone deletes pkg/a\.py, and an overlay cannot"):
        made.lay()
    assert not (made.folder / "overlay").exists()


def test_data_stands_at_its_path_and_a_package_that_is_missing_is_told(made: Set) -> None:
    made.add("data", "rows", kind="data", path="pkg/table.csv")
    assert made.lay()["patches"][0]["files"] == [{"path": "pkg/table.csv", "sha256": sha("rows")}]
    made.originals["roots"]["pkg"] = None
    with pytest.raises(UserError, match="the image has no package pkg"):
        made.lay()


def test_the_identity_follows_contents_and_not_where_they_lie(made: Set) -> None:
    made.add("one", DIFF)
    before = made.lay()["id"]
    made.originals["roots"]["pkg"] = "/elsewhere"
    assert made.lay()["id"] == before
    made.add("two", NEW)
    assert made.lay()["id"] != before


def test_a_set_asks_the_image_for_what_its_patches_start_from(made: Set) -> None:
    made.add("one", DIFF + NEW + DIFF.replace("pkg/", "tests/"))
    made.add("edit", "", kind="script", files=["pkg/c.py"], reads=["pkg/d.py"])
    made.add("rows", "", kind="data", table="bf16_gemm")
    paths, patterns = needed_files(made.built, made.folder)
    assert paths == ["pkg/a.py", "pkg/sub/b.py", "pkg/c.py", "pkg/d.py", "pkg/__init__.py"]
    assert [pattern.split("/")[0] for pattern in patterns] == ["aiter", "aiter"]


EDIT: dict[str, Any] = {"kind": "script", "files": ["pkg/a.py"]}
FIND = "python3 -c 'import importlib.util as u; print(u.find_spec(\"pkg\").origin)'"


def test_a_script_finds_the_package_and_changes_copies_only(made: Set) -> None:
    made.add("edit", f'set -e; cd "$(dirname "$({FIND})")"; echo done >> a.py', **EDIT)
    made.lay()
    assert made.result("pkg/a.py") == "old\ndone\n"
    assert (made.folder / "originals/pkg/a.py").read_text(encoding="utf-8") == "old\n"


def test_a_script_gets_what_the_patches_before_it_made(made: Set) -> None:
    made.add("one", DIFF)
    made.add("edit", 'grep -q new pkg/a.py && echo "$X" >> pkg/a.py', env={"X": "in ${WORK}"}, **EDIT)
    made.lay()
    assert made.result("pkg/a.py").startswith("new\nin /")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo x >> pkg/a.py; exit 3", "exit code 3"),
        ("echo x >> pkg/a.py; echo hunk FAILED", "hunk FAILED"),
        ("echo x >> pkg/__init__.py; echo x >> pkg/a.py", "files that it does not declare"),
        ("echo x > pkg/new.py; echo x >> pkg/a.py", "files that it does not declare"),
        ("true", "left files unchanged"),
        ("rm pkg/a.py", "removed files"),
        ("patch -p1 < /dev/null && echo x >> pkg/a.py", "patch is withheld"),
        ("python -m pip install x && echo x >> pkg/a.py", "pip is withheld"),
    ],
)
def test_a_script_that_does_else_than_declared_is_refused(made: Set, script: str, told: str) -> None:
    made.add("edit", script, failure="FAILED", **EDIT)
    with pytest.raises(UserError, match=told):
        made.lay()
    assert not (made.folder / "overlay").exists()


def test_a_view_imports_as_the_package_with_the_changed_file_in_it(made: Set, tmp_path: Path) -> None:
    site = tmp_path / "site/pkg"
    (site / "sub").mkdir(parents=True)
    (site / "__init__.py").touch()
    (site / "sub/__init__.py").write_text("from pkg.a import kept\n", encoding="utf-8")
    (site / "a.py").write_text("old\n", encoding="utf-8")
    (site / "kept.so").touch()
    made.originals["roots"]["pkg"] = str(site.parent)
    made.add("new", NEW)
    made.add("one", DIFF.replace("+new", "+kept = 2"))
    overlay = made.lay()
    lay_view(overlay, made.folder, tmp_path / "view")
    code = "import pkg.sub.b, pkg.a; print(pkg.__file__, pkg.sub.kept + pkg.sub.b.value)"
    run = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={"PYTHONPATH": f"{tmp_path}/view:{site.parent}", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [f"{tmp_path}/view/pkg/__init__.py", "3"]
    assert (tmp_path / "view/pkg/kept.so").is_symlink()
    assert sorted(path.name for path in site.iterdir()) == ["__init__.py", "a.py", "kept.so", "sub"]
    assert (site / "a.py").read_text(encoding="utf-8") == "old\n"


def test_a_container_gets_one_mount_a_file_read_only(made: Set) -> None:
    made.add("one", DIFF)
    overlay = made.lay()
    words = [word for pair in mounts(overlay, made.folder) for word in RUNTIMES["docker"].mount(*pair)]
    assert words == [
        "--mount",
        f"type=bind,source={made.folder}/overlay/pkg/a.py,target=/site/pkg/a.py,readonly",
    ]
    filled = fill_all(["run", "${OVERLAY_MOUNTS}", "x"], {"OVERLAY_MOUNTS": "\n".join(words)})
    assert filled == ["run", *words, "x"]
    assert fill_all(["run", "${OVERLAY_MOUNTS}", "x"], {"OVERLAY_MOUNTS": ""}) == ["run", "x"]


def software(**files: str | None) -> Software:
    found = {"pkg/a.py": sha("old\n"), **files}
    return Software({"pkg": "/site"}, found, {}, {"triton": "3.7.0+rocm7"})


def test_a_node_is_compared_before_and_after(made: Set) -> None:
    made.add("one", DIFF)
    made.built["versions"] = [{"id": "pin", "distribution": "triton", "version": "3.7.0"}]
    overlay = made.lay()
    seen = check_overlay(overlay, made.built, made.folder, software(), "n1")
    assert seen == [
        {"path": "pkg/a.py", "before": sha("old\n"), "after": sha("new\n")},
        {"distribution": "triton", "version": "3.7.0+rocm7"},
    ]
    other = Software({"pkg": "/site"}, {"pkg/a.py": sha("other")}, {}, {"triton": "3.8.0"})
    with pytest.raises(UserError, match=r"(?s)node n2: /site: .*another pkg/a\.py than the patches"):
        check_overlay(overlay, made.built, made.folder, other, "n2")
    with pytest.raises(
        UserError, match=r"(?s)another triton.*expected: triton 3\.7\.0.*found: +3\.8\.0"
    ):
        check_overlay(overlay, made.built, made.folder, other._replace(files=software().files), "n2")
    (made.folder / "overlay/pkg/a.py").write_text("edited\n", encoding="utf-8")
    with pytest.raises(UserError, match="does not see the patched file that was built"):
        check_overlay(overlay, made.built, made.folder, software(), "n1")
    with pytest.raises(UserError, match="made from another patch set"):
        check_overlay(overlay, made.built | {"id": "x"}, made.folder, software(), "n1")


def test_a_hook_is_for_the_file_that_the_patches_made(made: Set) -> None:
    made.add("one", DIFF)
    found = {name: Source("/site", sha("old\n")) for name in ("pkg.a", "pkg.b")}
    laid = with_overlay(found, made.lay())
    assert {name: source.sha256 for name, source in laid.items()} == {
        "pkg.a": sha("new\n"),
        "pkg.b": sha("old\n"),
    }
