"""A patched file over a real image's own: taken out, changed, compared, mounted read-only."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from serve_repro.documents import read_json
from serve_repro.patches.overlay import mounts
from serve_repro.runtimes import RUNTIMES

from .conftest import PACKAGES, TARGET, Image
from .nodes import Node

BASE = Path(__file__).parents[2]
PATH = "vllm/v1/target.py"
DIFF = f"""diff --git a/{PATH} b/{PATH}
--- a/{PATH}
+++ b/{PATH}
@@ -1 +1,2 @@
 {TARGET.decode().rstrip()}
+patched = True
"""
NEW = """diff --git a/vllm/v1/fresh.py b/vllm/v1/fresh.py
new file mode 100644
--- /dev/null
+++ b/vllm/v1/fresh.py
@@ -0,0 +1 @@
+fresh = True
"""


def program(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BASE / f"scripts/{name}.py"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_has_the_patched_files_in_place_of_its_own(
    kind: str, request: pytest.FixtureRequest, image: Image, tmp_path: Path
) -> None:
    nodes: list[Node] = request.getfixturevalue(f"{kind}_nodes")
    node = nodes[0]
    node.run("pull", "--quiet", image.pinned)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/one").write_text(DIFF + NEW, encoding="utf-8")
    other = {"id": "one", "kind": "diff", "file": "sources/one"}
    built = {"id": "set", "hooks": [], "versions": [], "others": [other]}
    (tmp_path / "set.json").write_text(json.dumps(built), encoding="utf-8")
    receipt = {"image": image.name, "digest": image.digest, "config": image.config}
    (tmp_path / "image.json").write_text(json.dumps(receipt), encoding="utf-8")
    engine = json.dumps({"runtime": node.runtime, "command": node.command, "images": None})
    here = ["--image", "image.json", "--engine", engine, "--node", "localhost"]
    for name, words in {
        "take_originals": [*here, "--output", "originals.json"],
        "build_overlay": ["--originals", "originals.json", "--output", "overlay.json"],
        "check_patches": ["--overlay", "overlay.json", *here, "--output", "node.json"],
    }.items():
        run = program(tmp_path, name, "--patch-set", "set.json", *words)
        assert run.returncode == 0, run.stderr
    overlay = read_json(tmp_path / "overlay.json")
    before = {file["path"]: file["before"] for file in overlay["files"]}
    assert before == {PATH: hashlib.sha256(TARGET).hexdigest(), "vllm/v1/fresh.py": None}

    mount = RUNTIMES["docker"].mount
    words = [word for pair in mounts(overlay, tmp_path) for word in mount(*pair)]
    place = f"/{PACKAGES}/{PATH}"
    # The image's vllm/__init__.py refuses to be imported: look at the folder behind it.
    code = f"import sys; sys.path.insert(0, '/{PACKAGES}/vllm/v1'); import target, fresh; "
    code += "print(target.patched, target.__file__, fresh.fresh)"
    head = ["run", "--rm", "--pull", "never", "--network", "host", *words, "--entrypoint"]
    said = node.run(*head, "python3", image.pinned, "-c", code)
    assert said.split() == ["True", place, "True"]
    said = node.run(*head, "bash", image.pinned, "-c", f"echo x >> {place} || echo refused")
    assert said.strip() == "refused"
    (tmp_path / "overlay" / PATH).write_text("edited", encoding="utf-8")
    run = program(
        tmp_path, "check_patches", "--patch-set", "set.json", "--overlay", "overlay.json", *here,
        "--output", "other.json",
    )  # fmt: skip
    assert run.returncode == 1
    assert "does not see the patched file that was built" in run.stderr
    assert not (tmp_path / "other.json").exists()
    node.run("image", "rm", "--force", image.config.removeprefix("sha256:"))
