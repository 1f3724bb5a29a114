"""Fetched patches: kept under their hash, hashed again on use, each failure told apart."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.patches.fetch import fetch

URL = "https://example.org/pinned/a.patch"
DATA = b"a patch\n"
SHA = hashlib.sha256(DATA).hexdigest()
NOWHERE = ("https://example.org", "http://127.0.0.1:1")


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A mirror on the loopback that has the file."""
    (tmp_path / "served/pinned").mkdir(parents=True)
    (tmp_path / "served/pinned/a.patch").write_bytes(DATA)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "https://example.org", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_file_is_kept_under_its_hash_and_used_without_network(
    mirror: tuple[str, str], tmp_path: Path
) -> None:
    kept = fetch(URL, SHA, tmp_path / "cache", mirror=mirror)
    assert kept == tmp_path / "cache" / SHA
    assert kept.read_bytes() == DATA
    assert fetch(URL, SHA, tmp_path / "cache", mirror=NOWHERE, pause_s=0) == kept
    assert [path.name for path in kept.parent.iterdir()] == [SHA]


def test_other_contents_are_refused_with_both_hashes(mirror: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="other contents") as error:
        fetch(URL, "0" * 64, tmp_path / "cache", mirror=mirror)
    assert "0" * 64 in str(error.value)
    assert SHA in str(error.value)
    assert not (tmp_path / "cache").exists()


def test_an_address_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be fetched, and no copy is kept"):
        fetch(URL, SHA, tmp_path / "cache", mirror=NOWHERE, pause_s=0)


def test_a_damaged_copy_is_fetched_again_or_told(mirror: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / SHA).write_bytes(b"a pa")
    with pytest.raises(UserError, match="the kept copy is damaged"):
        fetch(URL, SHA, tmp_path / "cache", mirror=NOWHERE, pause_s=0)
    assert fetch(URL, SHA, tmp_path / "cache", mirror=mirror).read_bytes() == DATA


@pytest.mark.parametrize("name", [SHA, "a.patch"])
def test_an_offline_folder_has_files_by_hash_or_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "offline").mkdir()
    with pytest.raises(UserError, match="the offline folder lacks a file"):
        fetch(URL, SHA, tmp_path / "cache", offline=tmp_path / "offline")
    (tmp_path / "offline" / name).write_bytes(DATA)
    assert fetch(URL, SHA, tmp_path / "cache", offline=tmp_path / "offline").read_bytes() == DATA


def test_a_mirror_is_https(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a mirror needs an https address"):
        fetch(URL, SHA, tmp_path / "cache", mirror=("https://example.org", "http://example.net"))
