"""Manifests as registries send them, and what is said when skopeo fails; skopeo itself is a fake."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import read_yaml
from serve_repro.errors import UserError
from serve_repro.image import registry
from serve_repro.image.reference import is_loopback
from serve_repro.sweep import Sweep

DOCKER = "application/vnd.docker.distribution.manifest."
OCI = "application/vnd.oci.image."
CONFIG = {"os": "linux", "architecture": "amd64"}
SECRET = "s3cr3t-value"  # noqa: S105 - what no message may hold


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def manifest(kind: str | None, config: str = digest("c")) -> dict[str, Any]:
    layers = [{"digest": digest("a"), "size": 100}, {"digest": digest("b"), "size": 23}]
    document = {"schemaVersion": 2, "config": {"digest": config, "size": 7}, "layers": layers}
    return document | ({"mediaType": kind} if kind else {})


def listed(kind: str | None, *entries: tuple[str, str, str]) -> dict[str, Any]:
    manifests = [
        {"digest": value, "platform": {"os": system, "architecture": machine}}
        for value, system, machine in entries
    ]
    return {"schemaVersion": 2, "manifests": manifests} | ({"mediaType": kind} if kind else {})


@pytest.mark.parametrize("kind", [f"{DOCKER}v2+json", f"{OCI}manifest.v1+json", None])
def test_a_manifest_gives_its_configuration_and_layers(kind: str | None) -> None:
    document = manifest(kind)
    assert not registry.is_list(document)
    found = registry.read_manifest(document, "x:tag")
    assert found.config == digest("c")
    assert found.layers == [
        {"digest": digest("a"), "bytes": 100},
        {"digest": digest("b"), "bytes": 23},
    ]


@pytest.mark.parametrize("kind", [f"{DOCKER}list.v2+json", f"{OCI}index.v1+json", None])
def test_a_list_gives_our_platform_and_not_an_attestation(kind: str | None) -> None:
    entries = [
        (digest("1"), "linux", "arm64"),
        (digest("2"), "unknown", "unknown"),
        (digest("3"), "linux", "amd64"),
    ]
    document = listed(kind, *entries)
    assert registry.is_list(document)
    assert registry.platform_digest(document, "x:tag") == digest("3")


def test_a_list_without_our_platform_tells_which_it_has() -> None:
    with pytest.raises(UserError, match=r"(?s)linux/amd64.*linux/arm64"):
        registry.platform_digest(listed(None, (digest("1"), "linux", "arm64")), "x:tag")


def test_a_manifest_of_schema_1_is_refused() -> None:
    document = {"schemaVersion": 1, "fsLayers": []}
    with pytest.raises(UserError, match="schema 1"):
        registry.read_manifest(document, "x:tag")


@pytest.mark.parametrize(
    "change",
    [
        {"layers": None},
        {"layers": [{"digest": "md5:1", "size": 1}]},
        {"layers": [{"digest": digest("a"), "size": -1}]},
        {"layers": [{"digest": digest("a"), "size": True}]},
        {"config": None},
        {"config": {"digest": "latest"}},
        {"mediaType": "application/json"},
        {"manifests": []},
    ],
)
def test_a_broken_manifest_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        registry.read_manifest(manifest(None) | change, "x:tag")


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[]", b"\xff"])
def test_an_answer_that_is_no_manifest_is_an_error(raw: bytes) -> None:
    with pytest.raises(UserError, match="the registry's answer"):
        registry.parse(raw, "x:tag")


@pytest.mark.parametrize(
    ("reference", "loopback"),
    [
        ("127.0.0.1:5000/x:tag", True),
        ("localhost/x:tag", True),
        ("localhost:5000/x:tag", True),
        ("127.0.0.1.example.org/x:tag", False),
        ("localhost:tag", False),
        ("vllm/vllm-openai:v1", False),
        ("registry.example.org:5000/localhost/x:tag", False),
    ],
)
def test_only_a_registry_on_this_machine_may_do_without_tls(reference: str, loopback: bool) -> None:
    assert is_loopback(reference) is loopback


class Skopeo:
    """A program called skopeo that answers from files and notes how it was called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        program = folder / "bin/skopeo"
        program.parent.mkdir()
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib, sys\n"
            f"folder = pathlib.Path({str(folder)!r})\n"
            "with (folder / 'calls').open('a') as calls:\n"
            "    calls.write(json.dumps(sys.argv[1:]) + '\\n')\n"
            "answers = json.loads((folder / 'answers.json').read_text())\n"
            "said = answers.get(sys.argv[-1], answers)\n"
            "if '--config' in sys.argv:\n"
            "    said = answers['config']\n"
            "sys.stderr.write(said.get('error', ''))\n"
            "sys.stdout.write(said.get('raw', ''))\n"
            "sys.exit(1 if 'error' in said else 0)\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))

    def answer(self, answers: dict[str, Any]) -> None:
        (self.folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def skopeo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Skopeo:
    """A fake skopeo, the only program on the PATH."""
    return Skopeo(tmp_path, monkeypatch)


def sent(document: dict[str, Any]) -> tuple[str, str]:
    raw = json.dumps(document)
    return raw, registry.sha256(raw.encode())


def test_a_list_takes_two_requests_and_its_own_digest_is_the_images(skopeo: Skopeo) -> None:
    inner, platform = sent(manifest(f"{DOCKER}v2+json"))
    outer, whole = sent(listed(f"{DOCKER}list.v2+json", (platform, "linux", "amd64")))
    skopeo.answer({"docker://org/x:tag": {"raw": outer}, f"docker://org/x@{platform}": {"raw": inner}})
    found = registry.resolve("org/x:tag", "org/x", whole, waits=())
    assert (found["digest"], found["platform"], found["config"]) == (whole, platform, digest("c"))
    assert found["bytes"] == 123
    assert len(skopeo.calls()) == 2
    assert not any("tls" in word for call in skopeo.calls() for word in call)


def test_a_manifest_without_a_list_is_its_own_platform(skopeo: Skopeo) -> None:
    config, config_digest = sent(CONFIG)
    raw, whole = sent(manifest(f"{OCI}manifest.v1+json", config_digest))
    skopeo.answer({"docker://127.0.0.1:5/x:tag": {"raw": raw}, "config": {"raw": config}})
    found = registry.resolve("127.0.0.1:5/x:tag", "127.0.0.1:5/x", None, waits=())
    assert found["digest"] == found["platform"] == whole
    assert all("--tls-verify=false" in call for call in skopeo.calls())


def test_an_image_for_another_platform_is_refused(skopeo: Skopeo) -> None:
    config, config_digest = sent(CONFIG | {"architecture": "arm64"})
    raw, _ = sent(manifest(f"{OCI}manifest.v1+json", config_digest))
    skopeo.answer({"docker://x:tag": {"raw": raw}, "config": {"raw": config}})
    with pytest.raises(UserError, match=r"(?s)not for this platform.*linux/arm64"):
        registry.resolve("x:tag", "x", None, waits=())


def test_other_bytes_than_asked_for_by_digest_are_refused(skopeo: Skopeo) -> None:
    outer, _ = sent(listed(None, (digest("9"), "linux", "amd64")))
    inner, _ = sent(manifest(None))
    skopeo.answer({"docker://x:tag": {"raw": outer}, f"docker://x@{digest('9')}": {"raw": inner}})
    with pytest.raises(UserError, match="something else than was asked for"):
        registry.resolve("x:tag", "x", None, waits=())


def test_a_tag_that_has_moved_shows_both_digests_and_asks_nothing_more(skopeo: Skopeo) -> None:
    outer, whole = sent(listed(None, (digest("9"), "linux", "amd64")))
    skopeo.answer({"docker://x:tag": {"raw": outer}})
    with pytest.raises(UserError, match=f"(?s)moved.*{digest('d')}.*{whole}"):
        registry.resolve("x:tag", "x", digest("d"), waits=())
    assert len(skopeo.calls()) == 1


@pytest.mark.parametrize(
    ("said", "problem", "tries"),
    [
        ("reading manifest timeout in docker.io/org/x: manifest unknown", "no such image or tag", 1),
        ("reading manifest v1 in host/x: unauthorized: authentication required", "wants a login", 1),
        ("errors:\\ndenied: requested access to the resource is denied", "wants a login", 1),
        ("pinging registry h: dial tcp 1.2.3.4:443: connect: connection refused", "be reached", 3),
        ('Get "https://h/v2/": dial tcp: lookup h: no such host', "be reached", 3),
        ("received unexpected HTTP status: 503 Service Unavailable", "be reached", 3),
        ("toomanyrequests: You have reached your pull rate limit", "too many requests", 3),
        ("x509: certificate signed by unknown authority", "cannot read the image", 1),
    ],
)
def test_each_failure_has_its_message_and_only_passing_ones_are_tried_again(
    skopeo: Skopeo, said: str, problem: str, tries: int
) -> None:
    quoted = said.replace('"', '\\"')
    skopeo.answer({"error": f'time="now" level=fatal msg="Error parsing image name: {quoted}"\n'})
    with pytest.raises(UserError, match=problem):
        registry.resolve("org/x:timeout", "org/x", None, waits=(0, 0))
    assert len(skopeo.calls()) == tries


@pytest.mark.parametrize(
    "said",
    [
        f"Get https://user:{SECRET}@host/v2/: EOF",
        f"Get https://host/token?account=me&token={SECRET}: EOF",
        f"Authorization: Bearer {SECRET}",
        f"Authorization: Basic {SECRET}",
        f'{{"access_token":"{SECRET}"}}',
        f"password={SECRET}",
    ],
)
def test_no_message_holds_a_secret(skopeo: Skopeo, said: str) -> None:
    skopeo.answer({"error": said})
    with pytest.raises(UserError) as caught:
        registry.resolve("x:tag", "x", None, waits=())
    assert SECRET not in str(caught.value)


def test_a_machine_without_skopeo_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="skopeo is not installed"):
        registry.resolve("x:tag", "x", None)


def test_a_reference_with_a_digest_is_refused() -> None:
    with pytest.raises(UserError, match="without a digest"):
        registry.resolve(f"x:tag@{digest('a')}", "x", None)


def test_a_rule_gets_tag_and_pin_where_there_are_containers_and_else_neither(tmp_path: Path) -> None:
    base = Path(__file__).parents[2]
    recipe = "kimik3-fp4-mi355x-vllm-agentic-tp8pp2"
    for part in ("config", "patches", "envs"):
        shutil.copytree(base / part, tmp_path / part)
    path = tmp_path / f"config/recipes/{recipe}.yaml"
    text = path.read_text(encoding="utf-8")
    assert "digest: null" in text
    path.write_text(text.replace("digest: null", f"digest: {digest('a')}"), encoding="utf-8")
    docker = Sweep(read_yaml(base / "config/config.yaml"), tmp_path)
    assert docker.reference(recipe).startswith("vllm/vllm-openai-rocm:nightly-")
    assert docker.pin(recipe) == digest("a")
    process = Sweep(read_yaml(base / "config/tiny.yaml"), tmp_path)
    tiny = next(iter(process.recipes))
    assert process.reference(tiny) == process.pin(tiny) == ""
