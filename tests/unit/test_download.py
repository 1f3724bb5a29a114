"""Weights from a hub: fetched only where allowed, held to what the hub says of them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .fake_hub import REVISION, FakeHub, serving

SCRIPTS = Path(__file__).parents[2] / "scripts"
SHARD = "model.safetensors"
TOKEN = "hf_" + "s" * 20


def shard(size: int) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    files = {"config.json": b"{}", SHARD: shard(300_000), ".gitattributes": b"*.safetensors lfs"}
    with serving(FakeHub(files)) as running:
        yield running


class Step:
    """`resolve_weights.py` and `verify_weights.py` as the workflow runs them, against the fake hub."""

    def __init__(self, folder: Path, hub: FakeHub) -> None:
        self.root, self.manifest = folder / "root", folder / "manifest.json"
        self.receipt = folder / "receipt.json"
        self.env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        self.env |= {"HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        self.env.pop("HF_TOKEN", None)
        self.said = ""

    def resolve(self, *, allowed: bool = True, revision: str | None = REVISION) -> int:
        sources: dict[str, Any] = {
            "models": [{"id": "org/tiny", "revision": revision}],
            "roots": [str(self.root)],
            "shared": [],
            "download_to": str(self.root) if allowed else None,
            "overrides": {},
            "mounted": True,
        }
        words = ["--sources", json.dumps(sources), "--output", str(self.manifest)]
        return self.run("resolve_weights", *words)

    def verify(self) -> int:
        words = ["--manifest", str(self.manifest), "--node", "localhost"]
        return self.run("verify_weights", *words, "--output", str(self.receipt))

    def run(self, name: str, *words: str) -> int:
        command = [sys.executable, str(SCRIPTS / f"{name}.py"), *words]
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        self.said = done.stderr + done.stdout
        assert "Traceback" not in self.said
        return done.returncode

    def listed(self) -> dict[str, Any]:
        model = json.loads(self.manifest.read_text(encoding="utf-8"))["models"][0]
        return {entry["path"]: entry for entry in model["files"]}


@pytest.fixture
def step(tmp_path: Path, hub: FakeHub) -> Step:
    return Step(tmp_path, hub)


def test_missing_weights_are_fetched_and_held_to_the_hubs_own_hash(step: Step, hub: FakeHub) -> None:
    assert step.resolve() == 0, step.said
    listed = step.listed()
    assert set(listed) == {"config.json", SHARD}
    assert listed[SHARD]["sha256"] == hub.etag(SHARD)
    assert {entry["source"] for entry in listed.values()} == {"hub"}
    assert "downloading, 0.00 of" in step.said
    assert step.verify() == 0, step.said


def test_what_is_there_is_not_asked_for_again(step: Step, hub: FakeHub) -> None:
    assert step.resolve() == 0
    before, asked = step.manifest.read_bytes(), len(hub.asked)
    assert step.resolve() == 0
    assert (step.manifest.read_bytes(), len(hub.asked)) == (before, asked)


def test_without_a_pin_the_commit_of_main_is_recorded(step: Step) -> None:
    assert step.resolve(revision=None) == 0, step.said
    assert json.loads(step.manifest.read_text())["models"][0]["revision"] == REVISION
    assert step.resolve(revision=None, allowed=False) == 0, step.said


def test_a_broken_connection_goes_on_where_it_broke(step: Step, hub: FakeHub) -> None:
    hub.files[SHARD] = shard(12_000_000)  # more than one piece of the hub's client (10 MiB)
    hub.cut[SHARD] = 11_000_000
    assert step.resolve() == 0, step.said
    first, second = hub.gets(SHARD)
    assert first is None
    assert second is not None
    assert int(second[6:-1]) > 0
    assert step.verify() == 0, step.said


def test_a_download_that_was_cut_is_finished_by_the_next_run(step: Step, hub: FakeHub) -> None:
    """Complete files are kept; without leave to download the gap is told, not papered over."""
    hub.cut, hub.cut_once = {SHARD: 0}, False
    assert step.resolve() == 1
    assert "the download broke off" in step.said
    assert "run again" in step.said
    assert not step.manifest.exists()
    assert step.resolve(allowed=False) == 1
    assert "no safetensors file here" in step.said
    hub.cut = {}
    configs = len(hub.gets("config.json"))
    assert step.resolve() == 0, step.said
    assert len(hub.gets("config.json")) == configs
    assert step.verify() == 0, step.said


def test_bytes_that_are_not_the_hubs_are_caught(step: Step, hub: FakeHub) -> None:
    """The right size: the hub's client itself does not notice."""
    hub.sent[SHARD] = hub.files[SHARD][:-1] + b"\xff"
    assert step.resolve() == 0, step.said
    assert step.verify() == 1
    assert f"{SHARD}: file has the right size and wrong bytes" in step.said
    assert f"expected: sha256 {hub.etag(SHARD)}" in step.said
    assert not step.receipt.exists()


def test_a_small_file_is_held_to_gits_hash(step: Step, hub: FakeHub) -> None:
    hub.sent["config.json"] = b"[]"
    assert step.resolve() == 1
    assert "config.json: file has the right size and wrong bytes" in step.said
    assert f"expected: git blob {hub.etag('config.json')}" in step.said


def test_a_gated_model_says_what_to_do_and_never_the_token(step: Step, hub: FakeHub) -> None:
    hub.gated = True
    assert step.resolve() == 1
    assert "accepted its terms" in step.said
    assert "HF_TOKEN is not set" in step.said
    step.env["HF_TOKEN"] = TOKEN
    assert step.resolve() == 1
    assert "refused, with HF_TOKEN" in step.said
    assert f"Bearer {TOKEN}" in hub.tokens
    assert TOKEN not in step.said


def test_a_token_file_of_the_user_is_not_sent(step: Step, hub: FakeHub) -> None:
    home = Path(step.env["HF_HOME"])
    home.mkdir()
    (home / "token").write_text(TOKEN, encoding="utf-8")
    assert step.resolve() == 0, step.said
    assert hub.tokens == {None}


def test_a_revision_that_the_hub_does_not_have(step: Step) -> None:
    assert step.resolve(revision="d" * 40) == 1
    assert "no such revision" in step.said
    assert f"expected: revision {'d' * 40}" in step.said


def test_without_leave_nothing_is_asked_and_the_remedy_is_told(step: Step, hub: FakeHub) -> None:
    assert step.resolve(allowed=False) == 1
    assert "no weights of org/tiny" in step.said
    assert "download_weights_to" in step.said
    assert hub.asked == []
