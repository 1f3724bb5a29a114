"""Having an image on a node, with an engine that only pretends."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from serve_repro.errors import UserError
from serve_repro.image import pull
from serve_repro.image.call import CallFailed, call
from serve_repro.image.causes import retry_after_s
from serve_repro.image.docker import Docker
from serve_repro.image.engine import engine_of
from serve_repro.image.enroot import Enroot
from serve_repro.image.inside import sources
from serve_repro.image.reference import enroot_address, is_loopback, qualified
from serve_repro.image.resolved import Image, read_image

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
IMAGE = Image("org/x", digest=A, platform=B, config=C, layers=[], size=1000)


class Pretender:
    """Has nothing; says one thing after another when it is asked to pull; then has `config`."""

    space = 3
    credentials = "log in like this"

    def __init__(self, *said: str, config: str | None = C, here: str | None = None) -> None:
        self.said, self.config, self.here = list(said), config, here
        self.fetched = 0

    def version(self) -> str:
        return "1"

    def target(self, image: Image) -> str:
        return image.pinned

    def removal(self, image: Image) -> str:
        return "rm it"

    def present(self, image: Image) -> str | None:
        return self.here

    def fetch(self, image: Image, timeout: float) -> None:
        self.fetched += 1
        if self.said:
            raise CallFailed(self.said.pop(0))
        self.here = self.config

    def stores(self) -> list[Path]:
        return [Path(tempfile.gettempdir()) / "not/there/yet"]

    def run(self, image: Image, words: list[str], stdin: str = "") -> str:
        raise CallFailed("no python3 in there")


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """Nobody waits; locks lie in the test's own folder."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return waits


def test_what_is_there_is_not_pulled(slept: list[float]) -> None:
    engine = Pretender(here=C)
    assert pull.have(engine, IMAGE, "n1").tries == 0
    assert engine.fetched == 0


def test_what_may_pass_is_tried_again_and_each_try_is_logged(
    slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine = Pretender("unexpected EOF", "dial tcp: connection refused")
    assert pull.have(engine, IMAGE, "n1", waits=(1, 2, 3)).tries == 3
    assert slept == [1, 2]
    said = [record.getMessage() for record in caplog.records]
    assert sum("try " in line and " failed: " in line for line in said) == 2
    assert any("try 3 of 4" in line for line in said)


def test_tries_have_an_end() -> None:
    engine = Pretender(*["unexpected EOF"] * 9)
    with pytest.raises(UserError, match=r"(?s)n1: org/x@.*cannot be reached.*found: +unexpected EOF"):
        pull.have(engine, IMAGE, "n1", waits=(0, 0))
    assert engine.fetched == 3


@pytest.mark.parametrize(
    ("said", "waited"),
    [("toomanyrequests: retry-after: 70s", [70]), ("toomanyrequests: slower, please", [2])],
)
def test_a_registry_that_says_how_long_to_wait_is_obeyed(
    said: str, waited: list[float], slept: list[float]
) -> None:
    assert pull.have(Pretender(said), IMAGE, "n1", waits=(2,)).tries == 2
    assert slept == waited


def test_a_registry_that_asks_for_an_hour_is_not_waited_for(slept: list[float]) -> None:
    with pytest.raises(UserError, match="asks to wait"):
        pull.have(Pretender("429 Too Many Requests, retry-after: 60m"), IMAGE, "n1", waits=(2,))
    assert slept == []


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("write /var/x: no space left on device", "the disk is full"),
        ("Digest did not match, expected sha256:1, got sha256:2", "sends wrong bytes"),
        ("filesystem layer verification failed for digest sha256:1", "sends wrong bytes"),
        ("manifest for org/x@sha256:1 not found: manifest unknown: unknown", "no such image or tag"),
        ("no basic auth credentials", "(?s)wants a login.*log in like this"),
        ("something new", "(?s)cannot pull.*something new.*if the registry wants a login: log in"),
    ],
)
def test_what_does_not_pass_is_told_at_once(said: str, problem: str) -> None:
    engine = Pretender(said)
    with pytest.raises(UserError, match=problem):
        pull.have(engine, IMAGE, "n1", waits=(0, 0))
    assert engine.fetched == 1


def test_a_secret_that_an_engine_repeats_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    said = "Get https://me:s3cret@registry/v2/?token=s3cret: EOF"
    with pytest.raises(UserError) as caught:
        pull.have(Pretender(*[said] * 2), IMAGE, "n1", waits=(0,))
    assert "s3cret" not in str(caught.value) + caplog.text


@pytest.mark.parametrize(
    ("engine", "found"),
    [(Pretender(config=B), B), (Pretender(here=B), B), (Pretender(config=None), "although the engine")],
)
def test_another_image_than_the_resolved_one_is_refused(engine: Pretender, found: str) -> None:
    with pytest.raises(UserError, match=f"(?s)not what was resolved.*{C}.*{found}"):
        pull.have(engine, IMAGE, "n1", waits=())


def test_too_little_space_names_both_numbers_and_nothing_is_pulled() -> None:
    engine = Pretender()
    with pytest.raises(
        UserError, match=rf"(?s)not enough free space.*{3 * 10**15} bytes.*found: +\d+ b"
    ):
        pull.have(engine, IMAGE._replace(size=10**15), "n1", waits=())
    assert engine.fetched == 0


def test_one_process_pulls_and_the_lock_leaves_no_file(tmp_path: Path) -> None:
    with pull._alone("n1", IMAGE):
        (path,) = tmp_path.iterdir()
        handle = os.open(path, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        entered: list[int] = []
        thread = threading.Thread(target=_enter, args=(entered,))
        thread.start()
        thread.join(0.1)
        assert entered == []
    thread.join(5)
    assert entered == [1]
    assert list(tmp_path.iterdir()) == []


def _enter(entered: list[int]) -> None:
    with pull._alone("n1", IMAGE):
        entered.append(1)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("retry-after: 219.4ms, allowed: 44000/minute", 0.2194),
        ("Retry-After: 30", 30),
        ("retry-after: 2m", 120),
        ("try again", None),
    ],
)
def test_how_long_a_registry_asks_to_wait(said: str, seconds: float | None) -> None:
    found = retry_after_s(said)
    assert found == (seconds if seconds is None else pytest.approx(seconds))


def test_a_command_that_takes_too_long_has_failed_and_may_be_tried_again() -> None:
    with pytest.raises(CallFailed) as caught:
        call(["sleep", "60"], timeout=0.1)
    assert caught.value.cause is not None
    assert caught.value.cause.transient


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(UserError, match=r"(?s)no-such-engine is not installed.*container\.command"):
        Docker(["no-such-engine"]).version()


class _Docker(Docker):
    """Answers an inspection."""

    def __init__(self, folder: Path, answer: str) -> None:
        path = folder / "docker"
        path.write_text(f"#!{sys.executable}\nprint({answer!r})\n", encoding="utf-8")
        path.chmod(0o755)
        super().__init__([str(path)])


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (f'[{{"Id": "{C}"}}]', C),
        (f'[{{"Id": "{C[7:]}"}}]', C),  # podman
        (f'[{{"Id": "{B}"}}]', B),  # another configuration
        # containerd's store names an image by its list or manifest.
        (f'[{{"Id": "{A}", "Descriptor": {{}}, "Os": "linux", "Architecture": "amd64"}}]', C),
        (f'[{{"Id": "{B}", "Descriptor": {{}}, "Os": "linux", "Architecture": "amd64"}}]', C),
        (f'[{{"Id": "{A}", "Descriptor": {{}}, "Os": "linux", "Architecture": "arm64"}}]', A),
    ],
)
def test_what_docker_has_is_told_by_its_configuration(answer: str, found: str, tmp_path: Path) -> None:
    assert _Docker(tmp_path, answer).present(IMAGE) == found


@pytest.mark.parametrize(
    ("name", "full", "enroot"),
    [
        ("org/x", "docker.io/org/x", f"docker://org/x@{A}"),
        ("x", "docker.io/library/x", f"docker://x@{A}"),
        ("ghcr.io/org/x", "ghcr.io/org/x", f"docker://ghcr.io#org/x@{A}"),
        ("localhost/x", "localhost/x", f"docker://localhost#x@{A}"),
        ("host:5000/a/b/x", "host:5000/a/b/x", f"docker://host:5000#a/b/x@{A}"),
    ],
)
def test_each_runtime_gets_a_name_that_it_understands(name: str, full: str, enroot: str) -> None:
    assert qualified(name) == full
    assert enroot_address(name, A) == enroot
    assert is_loopback(name) == (name == "localhost/x")


# Keeps what "came" in its cache as enroot does, a file for each digest, and makes the image's file.
_ENROOT = """#!{python}
import hashlib, os, pathlib, sys
if sys.argv[1] == "import":
    assert sys.argv[4] == {address!r}, sys.argv
    cache = pathlib.Path(os.environ["ENROOT_CACHE_PATH"])
    cache.mkdir(parents=True)
    for name in {came!r}:
        (cache / name).write_bytes(b"packed anew")
    pathlib.Path(sys.argv[3]).write_bytes(b"squashed")
    if {fails!r}:
        sys.exit({fails!r})
"""


def enroot_with(folder: Path, came: str, fails: str = "") -> tuple[Enroot, Image]:
    image = IMAGE._replace(name="host:5/org/x", layers=[B])
    program, address = folder / "enroot", enroot_address("host:5/org/x", A)
    text = _ENROOT.format(python=sys.executable, address=address, came=[C[7:], came[7:]], fails=fails)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return Enroot([str(program)], folder / "images"), image


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "images").iterdir())


def test_enroot_makes_one_file_by_digest_from_exactly_the_layers(tmp_path: Path) -> None:
    engine, image = enroot_with(tmp_path, B)
    assert engine.present(image) is None
    assert pull.have(engine, image, "n1", waits=()).tries == 1
    assert pull.have(engine, image, "n1", waits=()).tries == 0
    file = f"{A.replace(':', '-')}.sqsh"
    assert names(tmp_path) == [file, f"{file}.json"]
    assert engine.target(image) == str(tmp_path / "images" / file)


def test_enroot_takes_a_swapped_image_and_we_do_not(tmp_path: Path) -> None:
    engine, image = enroot_with(tmp_path, A)
    with pytest.raises(UserError, match="what was fetched is not the resolved image"):
        pull.have(engine, image, "n1", waits=())
    assert names(tmp_path) == []


@pytest.mark.parametrize(("said", "kept"), [("unexpected EOF", True), ("who knows", False)])
def test_a_failed_import_leaves_no_file_and_keeps_what_a_next_try_may_use(
    said: str, kept: bool, tmp_path: Path
) -> None:
    engine, image = enroot_with(tmp_path, B, fails=said)
    with pytest.raises(UserError):
        pull.have(engine, image, "n1", waits=())
    assert engine.present(image) is None
    assert [Path(name).suffix for name in names(tmp_path)] == ([".work"] if kept else [])


def test_image_files_need_a_folder() -> None:
    site = {"runtime": "enroot", "command": ["enroot"], "images": None}
    with pytest.raises(UserError, match=r"container\.images"):
        engine_of(site)


def test_a_pinned_environment_goes_through_the_same_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    python = Path(".envs/serve-cpu/bin/python")
    if not python.exists():
        pytest.skip(f"{python} is not built")
    engine = engine_of({"runtime": "process", "command": [], "images": None})
    image = read_image({"image": "envs/serve-cpu", "kind": "environment", "digest": A})
    assert engine.target(image) == str(python)
    with pytest.raises(UserError, match=r"(?s)not what was resolved.*rm -r \.envs/serve-cpu"):
        pull.have(engine, image, "n1", waits=())
    found: Any = sources(engine, image, ["vllm.sequence", "no.such"], "n1")
    assert found["vllm.sequence"].path.endswith("site-packages/vllm/sequence.py")
    assert found["no.such"].sha256 is None


def test_an_image_without_python_is_told() -> None:
    with pytest.raises(UserError, match=r"(?s)n1: org/x@.*Python does not run.*no python3 in there"):
        sources(Pretender(), IMAGE, ["vllm"], "n1")
