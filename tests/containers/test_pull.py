"""The rules' own programs on two simulated nodes: resolve, pull, prove, look inside."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from serve_repro.errors import UserError
from serve_repro.image.engine import engine_of
from serve_repro.image.pull import have
from serve_repro.image.registry import resolve

from .conftest import TARGET, Image, Push, resolved, site_of
from .fault_proxy import fault_proxy
from .nodes import Node
from .oci_layout import layer

PROGRAMS = Path(__file__).parents[2] / "scripts"


def program(name: str, *words: str) -> None:
    said = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{name}.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PYTHONPATH": ""},
    )
    assert said.returncode == 0, said.stderr


def patch_set(path: Path, sha256: str) -> list[str]:
    """A set of one hook, over which nothing of others lies, as words for `check_patches`."""
    target = {"module": "vllm.v1.target", "sha256": {"vllm 1": sha256}}
    hook = {"id": "one", "targets": [target], "superseded_by": None}
    built = {"id": "0" * 64, "hooks": [hook], "others": [], "versions": []}
    path.write_text(json.dumps(built), encoding="utf-8")
    overlay = path.with_name("overlay.json")
    empty: dict[str, Any] = {"files": [], "patches": [], "roots": {}, "image": None}
    overlay.write_text(json.dumps({"id": "1" * 64, "set": "0" * 64, **empty}), encoding="utf-8")
    return ["--patch-set", str(path), "--overlay", str(overlay)]


def test_each_node_pulls_once_proves_and_is_looked_into(
    nodes: list[Node], image: Image, tmp_path: Path
) -> None:
    found = tmp_path / "image.json"
    words = ["--image", image.name, "--runtime", nodes[0].runtime, "--environment"]
    program("resolve_image", *words, "--reference", image.reference, "--pin", "--output", str(found))
    patches = patch_set(tmp_path / "set.json", hashlib.sha256(TARGET).hexdigest())
    for node in nodes:
        receipt, history = tmp_path / f"{node.name}.json", tmp_path / f"{node.name}.history.jsonl"
        engine = ["--engine", json.dumps(site_of(node)), "--node", "localhost"]
        pull = ["--image", str(found), *engine, "--history", str(history), "--output", str(receipt)]
        program("pull_image", *pull)
        first = receipt.read_bytes()
        program("pull_image", *pull)
        assert receipt.read_bytes() == first
        lines = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
        assert [line["tries"] for line in lines] == [1, 0]
        assert all(line["engine_version"] for line in lines)
        proven = json.loads(first)
        assert (proven["digest"], proven["config"]) == (image.digest, image.config)
        assert proven["bytes"] > 10**7
        seen = tmp_path / f"{node.name}.patches.json"
        check = [*patches, "--image", str(receipt), *engine]
        program("check_patches", *check, "--output", str(seen))
        targets = json.loads(seen.read_text(encoding="utf-8"))["targets"]
        assert [target["module"] for target in targets] == ["vllm.v1.target"]
    digests = {json.loads((tmp_path / f"{n.name}.json").read_text())["digest"] for n in nodes}
    assert digests == {image.digest}


def test_another_source_inside_the_image_is_named(
    nodes: list[Node], image: Image, tmp_path: Path
) -> None:
    node = nodes[0]
    have(engine_of(site_of(node)), resolved(image), node.name, waits=())
    receipt = tmp_path / "receipt.json"
    document = {"image": image.name, **resolve(image.reference, image.name, None, waits=())}
    receipt.write_text(json.dumps(document), encoding="utf-8")
    patches = patch_set(tmp_path / "set.json", "a" * 64)
    words = [*patches, "--image", str(receipt), "--node", "localhost"]
    engine = ["--engine", json.dumps(site_of(node)), "--output", str(tmp_path / "x.json")]
    with pytest.raises(AssertionError, match=r"dist-packages/vllm/v1/target.py: .* written for another"):
        program("check_patches", *words, *engine)
    assert not (tmp_path / "x.json").exists()


def test_what_is_there_and_proven_asks_no_registry(nodes: list[Node], push: Push) -> None:
    pushed = push("org/once", [layer({"a": (os.urandom(1000), 0o644)})])
    with fault_proxy(pushed.name.partition("/")[0]) as proxy:
        image = resolved(pushed)._replace(name=f"{proxy.address}/org/once")
        engine = engine_of(site_of(nodes[0]))
        assert have(engine, image, "node1", waits=()).tries == 1
        assert proxy.requests
        proxy.requests.clear()
        assert have(engine, image, "node1", waits=()).tries == 0
        assert proxy.requests == []


def test_of_two_that_want_the_same_image_one_pulls(nodes: list[Node], push: Push) -> None:
    pushed = push("org/twice", [layer({"a": (os.urandom(1000), 0o644)})])
    image, tries = resolved(pushed), []
    engine = engine_of(site_of(nodes[0]))

    def pull() -> None:
        tries.append(have(engine, image, "node1", waits=()).tries)

    both = [threading.Thread(target=pull) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sorted(tries) == [0, 1]


def test_a_tag_that_moves_after_it_was_resolved_moves_nothing(nodes: list[Node], push: Push) -> None:
    before = resolved(push("org/moves", [layer({"a": (b"1", 0o644)})]))
    after = resolved(push("org/moves", [layer({"a": (b"2", 0o644)})]))
    assert before.config != after.config
    engine = engine_of(site_of(nodes[0]))
    have(engine, before, "node1", waits=())
    assert engine.present(before) == before.config
    assert engine.present(after) is None


def test_an_image_file_that_changes_is_made_again(apptainer_nodes: list[Node], push: Push) -> None:
    node = apptainer_nodes[1]
    image = resolved(push("org/changes", [layer({"a": (b"1", 0o644)})]))
    engine = engine_of(site_of(node))
    have(engine, image, node.name, waits=())
    path = Path(engine.target(image))
    path.touch()
    assert have(engine, image, node.name, waits=()).tries == 0
    with path.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"x")
    assert have(engine, image, node.name, waits=()).tries == 1
    assert have(engine, image, node.name, waits=()).tries == 0
    assert {p.name for p in node.images.glob("*.part")} | {
        p.name for p in node.images.glob("*.work")
    } == set()


def test_wrong_digest(nodes: list[Node], push: Push) -> None:
    """What was resolved and what the node has under the digest are two things."""
    image = resolved(push("org/wrong", [layer({"a": (b"3", 0o644)})]))
    other = f"sha256:{'e' * 64}"
    engine = engine_of(site_of(nodes[0]))
    have(engine, image, "node1", waits=())
    with pytest.raises(UserError, match=f"(?s)not what was resolved.*{other}.*{image.config}"):
        have(engine, image._replace(config=other), "node1", waits=())
