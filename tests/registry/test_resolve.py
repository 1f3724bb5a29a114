"""resolve_image against a real registry, with the real skopeo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.image.registry import resolve

from .server import Registry

PROGRAM = Path(__file__).parents[2] / "scripts/resolve_image.py"


def test_a_tag_is_resolved_down_to_its_layers(registry: Registry, tmp_path: Path) -> None:
    pushed = registry.push("org/x", "v1", "one")
    name, output = f"{registry.address}/org/x", tmp_path / "image.json"
    words = ["--image", name, "--runtime", "docker", "--environment", "--reference", f"{name}:v1"]
    subprocess.run(
        # As the rule says it: what this site does not have stands there without a value.
        [sys.executable, str(PROGRAM), *words, "--pin", "--output", str(output)],
        check=True,
        timeout=60,
    )
    found = json.loads(output.read_text(encoding="utf-8"))
    # skopeo compresses the layer as it pushes, so that layer and both manifests are new ones.
    (layer,) = found.pop("layers")
    assert found.pop("bytes") == layer["bytes"] > 0
    assert found.pop("digest") != found.pop("platform")
    assert found == {
        "image": name,
        "reference": f"{name}:v1",
        "kind": "image",
        "config": pushed["config"],
    }


def test_a_pin_holds_until_the_tag_moves(registry: Registry) -> None:
    name = f"{registry.address}/org/x"
    registry.push("org/x", "v1", "one")
    before = resolve(f"{name}:v1", name, None, waits=())["digest"]
    assert resolve(f"{name}:v1", name, before, waits=())["digest"] == before
    registry.push("org/x", "v1", "two")
    after = resolve(f"{name}:v1", name, None, waits=())["digest"]
    assert after != before
    with pytest.raises(UserError, match=f"(?s)the tag has moved.*{before}.*{after}"):
        resolve(f"{name}:v1", name, before, waits=())


@pytest.mark.parametrize("name", ["org/x", "org/other"])
def test_a_tag_that_is_not_there(registry: Registry, name: str) -> None:
    registry.push("org/x", "v1", "one")
    full = f"{registry.address}/{name}"
    with pytest.raises(UserError, match="no such image or tag"):
        resolve(f"{full}:v2", full, None, waits=())


def test_an_image_for_another_machine(registry: Registry) -> None:
    registry.push("org/x", "v1", "one", machine="arm64")
    name = f"{registry.address}/org/x"
    with pytest.raises(UserError, match=r"(?s)not for this platform.*linux/arm64"):
        resolve(f"{name}:v1", name, None, waits=())


def test_a_registry_that_is_down(registry: Registry) -> None:
    registry.stop()
    name = f"{registry.address}/org/x"
    with pytest.raises(UserError, match="the registry cannot be reached"):
        resolve(f"{name}:v1", name, None, waits=(0.1,))
