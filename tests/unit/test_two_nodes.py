"""One node of two has other bytes: each a host name and a disk of its own, at the same path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import file_sha256, write_json
from serve_repro.weights.locate import Found
from serve_repro.weights.manifest import manifest

from .test_weights import SHARDS, flip_one_byte, put_model

VERIFY = Path(__file__).parents[2] / "scripts/verify_weights.py"
ALONE = ["unshare", "--map-root-user", "--mount", "--uts"]
"""Names and mounts of its own for one command; they end with it."""

pytestmark = pytest.mark.skipif(
    subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0,
    reason="this system gives no namespaces",
)


class Nodes:
    """node1 and node2: the folder `disk` is another one on each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.disk = folder, folder / "disk"
        self.disk.mkdir()
        for node in ("node1", "node2"):
            put_model(folder / node / "tiny")
        put_model(self.disk / "tiny")
        listed = manifest("org/tiny", Found(self.disk / "tiny", "plain", None))
        write_json(folder / "manifest.json", {"models": [listed], "digest": "sha256:1"})
        shutil.rmtree(self.disk / "tiny")

    def verify(self, node: str) -> tuple[int, str]:
        """The program, on that node."""
        words = [sys.executable, str(VERIFY), "--manifest", str(self.folder / "manifest.json")]
        words += ["--node", node, "--output", str(self.receipt(node))]
        script = 'hostname "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"'
        done = subprocess.run(
            [*ALONE, "sh", "-c", script, "sh", node, self.folder / node, self.disk, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        return done.returncode, done.stderr

    def receipt(self, node: str) -> Path:
        return self.folder / f"{node}.json"


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_one_byte_on_one_node_is_found_there_and_repaired_there(nodes: Nodes) -> None:
    shard = nodes.folder / "node2/tiny" / SHARDS[1]
    right = file_sha256(shard)
    flip_one_byte(shard, at=-1)
    assert nodes.verify("node1")[0] == 0
    code, said = nodes.verify("node2")
    assert code == 1
    assert f"node node2: {nodes.disk}/tiny/{SHARDS[1]}: file has the right size and wrong bytes" in said
    assert f"expected: sha256 {right}" in said
    assert f"found:    sha256 {file_sha256(shard)}" in said
    assert not nodes.receipt("node2").exists()
    flip_one_byte(shard, at=-1)
    assert nodes.verify("node2")[0] == 0
    one, two = (models(nodes.receipt(node)) for node in ("node1", "node2"))
    assert [m["digest"] for m in one] == [m["digest"] for m in two]
    assert [m["proven_on"] for m in (*one, *two)] == ["node1", "node2"]


def test_a_node_can_not_be_proven_from_another(nodes: Nodes) -> None:
    script = 'hostname node1 && exec "$@"'
    words = [sys.executable, str(VERIFY), "--manifest", str(nodes.folder / "manifest.json")]
    words += ["--node", "node2", "--output", str(nodes.receipt("node2"))]
    done = subprocess.run(
        [*ALONE, "sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "runs on another" in done.stderr


def models(receipt: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(receipt.read_text(encoding="utf-8"))["models"]
    return found
