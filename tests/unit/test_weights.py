"""Weights: where they are found, whether they are whole, and what a receipt still notices later."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import file_sha256
from serve_repro.errors import UserError
from serve_repro.recipe.recipe import ModelSource
from serve_repro.weights.locate import Found, locate, seen_at
from serve_repro.weights.manifest import files_of, manifest
from serve_repro.weights.receipt import recheck, verify

PINNED, OTHER = "a" * 40, "b" * 40
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SIZE = 128


def model(revision: str | None = None) -> ModelSource:
    return ModelSource(id="org/tiny", revision=revision)


def shard_bytes(number: int) -> bytes:
    """A whole safetensors file of SIZE bytes, with one tensor."""
    data = bytes([number]) * 24
    entry = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    header = json.dumps({f"layer.{number}": entry}).encode().ljust(SIZE - 8 - len(data))
    return struct.pack("<Q", len(header)) + header + data


def put_model(folder: Path) -> Path:
    """A model of two shards, an index and a config."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    for number, shard in enumerate(SHARDS):
        (folder / shard).write_bytes(shard_bytes(number))
    index = {"weight_map": {f"layer.{number}": shard for number, shard in enumerate(SHARDS)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def put_hub(root: Path, *revisions: str, main: str | None = None) -> Path:
    """A hub folder as huggingface_hub lays it out: snapshots of links into blobs."""
    hub = root / "models--org--tiny"
    for revision in revisions:
        snapshot = put_model(hub / "snapshots" / revision)
        (hub / "blobs").mkdir(exist_ok=True)
        for path in list(snapshot.iterdir()):
            blob = hub / "blobs" / f"{revision[0]}-{path.name}"
            path.rename(blob)
            path.symlink_to(Path("../../blobs") / blob.name)
    if main is not None:
        (hub / "refs").mkdir(parents=True)
        (hub / "refs/main").write_text(main + "\n", encoding="utf-8")
    return hub


def test_the_first_root_that_has_the_model_wins(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    first.mkdir()
    put_model(second / "tiny")
    put_model(third / "tiny")
    assert locate(model(), [str(first), str(second), str(third)]).folder == second / "tiny"
    assert locate(model(), [str(third), str(second)]).folder == third / "tiny"


def test_roots_may_name_environment_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_WEIGHTS", str(tmp_path))
    put_model(tmp_path / "tiny")
    assert locate(model(), ["$MY_WEIGHTS"]) == Found(tmp_path / "tiny", "plain", None, "$MY_WEIGHTS")


def test_in_the_hub_layout_the_pinned_revision_counts_whatever_main_says(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, PINNED, OTHER, main=OTHER)
    found = locate(model(PINNED), [str(tmp_path)])
    assert found == Found(hub / "snapshots" / PINNED, "hub", PINNED, str(tmp_path))


def test_a_container_sees_the_blobs_that_a_snapshot_leads_to(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    linked = manifest("org/tiny", locate(model(PINNED), [str(tmp_path)]))
    assert linked["mount"] == str(hub)
    assert seen_at(linked, "/model") == f"/model/snapshots/{PINNED}"
    plain = manifest("org/tiny", Found(put_model(tmp_path / "tiny"), "plain", None))
    assert (plain["mount"], seen_at(plain, "/model")) == (str(tmp_path / "tiny"), "/model")


def put_note(plain: Path, revision: str, file: str = "config.json") -> None:
    """What `hf download --local-dir` leaves beside a file that it fetched."""
    note = plain / ".cache/huggingface/download" / f"{file}.metadata"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(f"{revision}\n0123abcd\n1700000000.0\n", encoding="utf-8")


def test_a_plain_folder_counts_for_a_pin_only_if_it_tells_that_revision(tmp_path: Path) -> None:
    plain = put_model(tmp_path / "tiny")
    with pytest.raises(UserError, match="nothing there tells its revision"):
        locate(model(PINNED), [str(tmp_path)])
    put_note(plain, PINNED)
    assert locate(model(PINNED), [str(tmp_path)]) == Found(plain, "plain", PINNED, str(tmp_path))
    assert locate(model(), [str(tmp_path)]).revision == PINNED
    with pytest.raises(UserError, match=f"wrong revision {PINNED}, wanted {OTHER}"):
        locate(model(OTHER), [str(tmp_path)])
    put_note(plain, OTHER, SHARDS[0])
    with pytest.raises(UserError, match=f"wrong revision {PINNED}, {OTHER}"):
        locate(model(PINNED), [str(tmp_path)])


def test_without_a_pin_the_revision_is_what_main_names(tmp_path: Path) -> None:
    put_hub(tmp_path, PINNED, OTHER, main=OTHER)
    assert locate(model(), [str(tmp_path)]).revision == OTHER


def test_some_snapshot_that_happens_to_be_there_is_never_taken(tmp_path: Path) -> None:
    """refs/main names a third one, and two are there: neither is what was asked for."""
    put_hub(tmp_path, PINNED, OTHER, main="c" * 40)
    with pytest.raises(UserError, match=f"snapshots .*{PINNED}.*{OTHER}.*wanted {'c' * 40}"):
        locate(model(), [str(tmp_path)])
    with pytest.raises(UserError, match=f"wanted {'d' * 40}"):
        locate(model("d" * 40), [str(tmp_path)])


def test_two_snapshots_and_no_main_are_no_answer(tmp_path: Path) -> None:
    put_hub(tmp_path, PINNED, OTHER)
    with pytest.raises(UserError, match="refs/main, which is missing"):
        locate(model(), [str(tmp_path)])


def test_the_message_lists_every_place_that_was_looked_at(tmp_path: Path) -> None:
    (tmp_path / "one/tiny").mkdir(parents=True)
    with pytest.raises(UserError) as error:
        locate(model(PINNED), [str(tmp_path / "one"), str(tmp_path / "two")])
    told = str(error.value)
    assert f"{tmp_path}/one/tiny: no config.json" in told
    assert f"{tmp_path}/one/models--org--tiny: not there" in told
    assert f"{tmp_path}/two/tiny: not there" in told
    assert f"{tmp_path}/two/models--org--tiny: not there" in told
    assert f"expected: revision {PINNED}" in told
    assert "weight_roots: no weights of org/tiny" in told


def test_a_manifest_lists_each_file_with_size_and_hash(tmp_path: Path) -> None:
    folder = put_model(tmp_path / "tiny")
    (folder / ".cache").mkdir()
    (folder / ".cache/lock").write_text("not a part of the model", encoding="utf-8")
    listed = manifest("org/tiny", Found(folder, "plain", None))["files"]
    assert [entry["path"] for entry in listed] == sorted(
        ["config.json", *SHARDS, "model.safetensors.index.json"]
    )
    assert {
        "path": SHARDS[0],
        "bytes": SIZE,
        "sha256": file_sha256(folder / SHARDS[0]),
        "source": "first seen",
    } in listed


def test_the_same_bytes_have_the_same_digest_in_both_layouts(tmp_path: Path) -> None:
    plain = manifest("org/tiny", Found(put_model(tmp_path / "tiny"), "plain", None))
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    linked = manifest("org/tiny", Found(hub / "snapshots" / PINNED, "hub", PINNED))
    assert linked["digest"] == plain["digest"]


def test_a_shard_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    folder = put_model(tmp_path / "tiny")
    (folder / SHARDS[1]).unlink()
    with pytest.raises(UserError, match=f"missing {SHARDS[1]}") as error:
        manifest("org/tiny", Found(folder, "plain", None))
    assert "expected: 2 shards" in str(error.value)
    assert "model.safetensors.index.json" in str(error.value)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            lambda whole: whole[:-1],
            "too short for its header\n  expected: 128 bytes\n  found:    127 bytes",
        ),
        (lambda whole: whole + b"x", "too long for its header"),
        (lambda whole: whole[:50], "ends within its header"),
        (lambda _: b"", "ends within its header"),
        (lambda _: b"<html>no such file</html>", "ends within its header, or is none"),
        (lambda whole: whole[:8] + b"x" * 96 + whole[-24:], "a damaged header"),
        (lambda _: struct.pack("<Q", 2) + b"[]", "a damaged header"),
    ],
    ids=["short", "long", "cut", "empty", "page", "garbled", "list"],
)
def test_a_shard_that_is_not_whole_is_told_before_it_is_hashed(
    tmp_path: Path, damage: Callable[[bytes], bytes], told: str
) -> None:
    shard = put_model(tmp_path / "tiny") / SHARDS[1]
    shard.write_bytes(damage(shard.read_bytes()))
    with pytest.raises(UserError) as error:
        manifest("org/tiny", Found(tmp_path / "tiny", "plain", None))
    assert str(error.value).startswith(str(shard))
    assert told in str(error.value)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="no safetensors file here"):
        manifest("org/tiny", Found(tmp_path, "plain", None))


def test_a_single_file_model_needs_no_index(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(shard_bytes(0))
    assert len(manifest("org/tiny", Found(tmp_path, "plain", None))["files"]) == 1


def test_a_dangling_link_is_told_by_its_name(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    (hub / "blobs" / f"a-{SHARDS[0]}").unlink()
    with pytest.raises(UserError, match=f"{SHARDS[0]}: file is a dangling link"):
        manifest("org/tiny", Found(hub / "snapshots" / PINNED, "hub", PINNED))


@pytest.fixture
def listed(tmp_path: Path) -> dict[str, Any]:
    """The manifest of a whole model in tmp_path/tiny."""
    return manifest("org/tiny", Found(put_model(tmp_path / "tiny"), "plain", None))


def test_a_whole_model_gets_a_receipt_that_holds_when_checked_again(listed: dict[str, Any]) -> None:
    receipt = verify(listed, "n1")
    assert (receipt["node"], receipt["digest"]) == ("n1", listed["digest"])
    assert [entry["sha256"] for entry in receipt["files"]] == [e["sha256"] for e in listed["files"]]
    recheck(receipt)


def flip_one_byte(shard: Path, at: int = 10) -> None:
    """Other bytes, the same size and time."""
    status = shard.stat()
    content = bytearray(shard.read_bytes())
    content[at] ^= 1
    shard.write_bytes(content)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (Path.unlink, "file is missing\n  expected: 128 bytes"),
        (
            lambda shard: shutil.copy(shard, f"{shard}.bak"),
            "file is extra\n  expected: the manifest's 4 files",
        ),
        (
            lambda shard: shard.write_bytes(b"x" * 127),
            "file is too short\n  expected: 128 bytes\n  found:    127 bytes",
        ),
        (
            lambda shard: shard.write_bytes(b"x" * 129),
            "file is too long\n  expected: 128 bytes\n  found:    129 bytes",
        ),
    ],
    ids=["missing", "extra", "short", "long"],
)
def test_what_a_node_lacks_or_has_too_much_is_told_apart(
    listed: dict[str, Any], damage: Callable[[Path], object], told: str
) -> None:
    shard = Path(listed["folder"]) / SHARDS[1]
    damage(shard)
    with pytest.raises(UserError) as error:
        verify(listed, "n2")
    assert str(error.value).startswith(f"node n2: {shard}")
    assert told in str(error.value)


def test_wrong_bytes_of_the_right_size_and_time_are_found(listed: dict[str, Any]) -> None:
    shard = Path(listed["folder"]) / SHARDS[1]
    right = file_sha256(shard)
    flip_one_byte(shard)
    with pytest.raises(UserError, match="right size and wrong bytes") as error:
        verify(listed, "n2")
    told = str(error.value)
    assert f"node n2: {shard}" in told
    assert f"expected: sha256 {right}" in told
    assert f"found:    sha256 {file_sha256(shard)}" in told


def test_all_faults_of_a_node_are_told_at_once(listed: dict[str, Any]) -> None:
    folder = Path(listed["folder"])
    (folder / SHARDS[0]).unlink()
    flip_one_byte(folder / SHARDS[1])
    (folder / "more.txt").touch()
    with pytest.raises(UserError) as error:
        verify(listed, "n2")
    told = str(error.value)
    for fault in ("file is missing", "file is extra", "right size and wrong bytes"):
        assert fault in told
    assert told.count("node n2: ") == 3


def test_a_link_that_dangles_on_one_node_names_that_node(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    listed = manifest("org/tiny", Found(hub / "snapshots" / PINNED, "hub", PINNED))
    (hub / "blobs" / f"a-{SHARDS[0]}").unlink()
    with pytest.raises(UserError, match=rf"node n2: .*{re.escape(SHARDS[0])}: file is a dangling link"):
        verify(listed, "n2")


def test_a_file_whose_bytes_changed_after_its_receipt_is_noticed(listed: dict[str, Any]) -> None:
    receipt = verify(listed, "n1")
    shard = Path(listed["folder"]) / SHARDS[0]
    before = file_sha256(shard)
    shard.write_bytes(b"y" * SIZE)
    with pytest.raises(UserError, match="changed after it was verified") as error:
        recheck(receipt)
    told = str(error.value)
    assert f"node n1: {shard}" in told
    assert f"expected: sha256 {before}" in told
    assert f"found:    sha256 {file_sha256(shard)}" in told


def test_a_file_that_went_after_its_receipt_is_noticed(listed: dict[str, Any]) -> None:
    receipt = verify(listed, "n1")
    (Path(listed["folder"]) / SHARDS[0]).unlink()
    with pytest.raises(UserError, match=f"node n1: .*{SHARDS[0]}: file is gone") as error:
        recheck(receipt)
    assert "-R resolve_weights" in str(error.value)


@pytest.mark.parametrize(
    "touch",
    [
        lambda shard: os.utime(shard, ns=(0, 0)),
        lambda shard: Path(shutil.copy2(shard, f"{shard}.new")).replace(shard),
    ],
    ids=["other time", "replaced by its copy"],
)
def test_only_bytes_decide_whether_a_file_changed(
    listed: dict[str, Any], touch: Callable[[Path], object]
) -> None:
    """A folder that was copied or restored is hashed again, not refused."""
    receipt = verify(listed, "n1")
    touch(Path(listed["folder"]) / SHARDS[0])
    recheck(receipt)


def test_a_file_that_did_not_move_is_not_hashed_again(listed: dict[str, Any]) -> None:
    """Receipts are cheap to check: 595 GB are not read once more before every point."""
    receipt = verify(listed, "n1")
    flip_one_byte(Path(listed["folder"]) / SHARDS[0])
    recheck(receipt)


def test_hidden_folders_are_no_part_of_a_model(tmp_path: Path) -> None:
    folder = put_model(tmp_path / "tiny")
    (folder / ".git/objects").mkdir(parents=True)
    (folder / ".git/objects/x").write_bytes(b"x")
    (folder / "sub").mkdir()
    (folder / "sub/tokenizer.model").write_bytes(b"x")
    names = [str(path) for path in files_of(folder)]
    assert "sub/tokenizer.model" in names
    assert not [name for name in names if name.startswith(".git")]
