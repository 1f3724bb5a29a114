"""Where weights may come from: a named folder, shared roots, links, and what the hub's client noted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import file_sha256
from serve_repro.errors import UserError
from serve_repro.recipe.load import parse
from serve_repro.recipe.recipe import ModelSource
from serve_repro.recipe.site import Site
from serve_repro.sweep import Sweep
from serve_repro.weights.links import check_links
from serve_repro.weights.locate import Found, locate, named
from serve_repro.weights.manifest import files_of, manifest
from serve_repro.weights.receipt import accept, verify
from serve_repro.weights.seen import find, seen

from .test_weights import OTHER, PINNED, SHARDS, flip_one_byte, model, put_hub, put_model, put_note


def sources(**more: Any) -> dict[str, Any]:
    return {"overrides": {}, "roots": [], **more}


def test_a_named_folder_wins_over_every_root(tmp_path: Path) -> None:
    mine, root = put_model(tmp_path / "mine"), put_model(tmp_path / "root/tiny").parent
    where = sources(roots=[str(root)], overrides={"org/tiny": str(mine)})
    assert find(model(), where) == Found(mine, "plain", None)
    assert (
        find(
            parse({"id": "org/other", "revision": None}, ModelSource, "x"),
            where | {"roots": [str(put_model(tmp_path / "root/other").parent)]},
        ).folder
        == tmp_path / "root/other"
    )


def test_a_named_folder_that_fails_is_an_error_and_no_root_is_tried(tmp_path: Path) -> None:
    put_model(tmp_path / "root/tiny")
    gone = tmp_path / "gone"
    where = sources(roots=[str(tmp_path / "root")], overrides={"org/tiny": str(gone)})
    with pytest.raises(UserError) as error:
        find(model(), where)
    assert f"weight_overrides.org/tiny: {gone}" in str(error.value)
    assert "found:    not there" in str(error.value)


def test_a_named_folder_must_have_the_pinned_revision(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, OTHER, main=OTHER)
    plain = put_model(tmp_path / "mine")
    put_note(plain, OTHER)
    for path in (hub, hub / "snapshots" / OTHER, plain):
        with pytest.raises(UserError) as error:
            named(model(PINNED), str(path))
        assert PINNED in str(error.value)
        assert OTHER in str(error.value)
        assert named(model(OTHER), str(path)).revision == OTHER
    assert named(model(OTHER), str(hub / "snapshots" / OTHER)).mount == hub


def test_a_pin_decides_against_main_and_a_missing_pin_tells_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_hub(tmp_path, PINNED, OTHER, main=OTHER)
    with caplog.at_level("INFO"):
        assert locate(model(PINNED), [str(tmp_path)]).revision == PINNED
    assert f"refs/main is {OTHER}, the recipe's revision {PINNED} counts" in caplog.text
    with pytest.raises(UserError, match=f"refs/main {OTHER}, wanted {'d' * 40}"):
        locate(model("d" * 40), [str(tmp_path)])


def test_the_hubs_sha256_is_expected_and_nothing_is_read_for_it(tmp_path: Path) -> None:
    """Wrong bytes under the right name are found by verification, not blessed by a first hash."""
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    link = hub / "snapshots" / PINNED / SHARDS[0]
    right = file_sha256(link)
    named_by_hash = link.resolve().rename(hub / "blobs" / right)
    link.unlink()
    link.symlink_to(Path("../../blobs") / right)
    flip_one_byte(named_by_hash, at=-1)
    listed = manifest("org/tiny", locate(model(PINNED), [str(tmp_path)]))
    entry = {entry["path"]: entry for entry in listed["files"]}[SHARDS[0]]
    assert (entry["sha256"], entry["source"]) == (right, "hub")
    with pytest.raises(UserError, match=f"expected: sha256 {right}"):
        verify(listed, "n1")


def test_a_note_beside_a_plain_folder_is_the_hubs_word_too(tmp_path: Path) -> None:
    plain = put_model(tmp_path / "tiny")
    etag = hashlib.sha1(b"blob 2\0{}").hexdigest()  # noqa: S324 - git's
    note = plain / ".cache/huggingface/download/config.json.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{PINNED}\n{etag}\n1.0\n", encoding="utf-8")
    listed = manifest("org/tiny", Found(plain, "plain", PINNED))["files"]
    assert {entry["path"]: entry["source"] for entry in listed}["config.json"] == "hub"
    (plain / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match=f"expected: git blob {etag}"):
        manifest("org/tiny", Found(plain, "plain", PINNED))


def test_links_that_leave_the_mount_are_told(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    found = locate(model(PINNED), [str(tmp_path)])
    check_links(found, files_of(found.folder))
    link = found.folder / SHARDS[0]
    blob = link.resolve()
    for target in (blob, Path("../../../outside")):
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(UserError, match=rf"{SHARDS[0]}: this link leads out") as error:
            check_links(found, files_of(found.folder))
        assert f"below {hub}" in str(error.value)


def test_a_link_into_a_linked_folder_is_followed_as_the_container_does(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    (hub / "blobs").rename(tmp_path / "elsewhere")
    (hub / "blobs").symlink_to("../elsewhere")
    found = locate(model(PINNED), [str(tmp_path)])
    with pytest.raises(UserError, match="this link leads out"):
        check_links(found, files_of(found.folder))


def shared_model(tmp_path: Path, *, shared: bool) -> dict[str, Any]:
    return manifest("org/tiny", Found(put_model(tmp_path / "tiny"), "plain", None), shared=shared)


def test_another_nodes_receipt_counts_only_where_the_site_shares_the_root(tmp_path: Path) -> None:
    listed = shared_model(tmp_path, shared=True)
    first = verify(listed, "n1")
    accepted = accept(listed, "n2", first)
    assert accepted is not None
    assert (accepted["node"], accepted["proven_on"]) == ("n2", "n1")
    assert accepted["files"] == first["files"]
    assert accept(listed | {"shared": False}, "n2", first) is None


def test_another_nodes_receipt_does_not_count_for_what_looks_otherwise_here(tmp_path: Path) -> None:
    listed = shared_model(tmp_path, shared=True)
    first = verify(listed, "n1")
    assert accept(listed | {"digest": "sha256:0"}, "n2", first) is None
    extra = Path(listed["folder"]) / "extra"
    extra.touch()
    assert accept(listed, "n2", first) is None
    extra.unlink()
    copy = Path(listed["folder"]) / "copy"
    shard = Path(listed["folder"]) / SHARDS[0]
    copy.write_bytes(shard.read_bytes())
    copy.replace(shard)
    assert accept(listed, "n2", first) is None


def test_a_node_with_another_snapshot_has_the_wrong_revision(tmp_path: Path) -> None:
    hub = put_hub(tmp_path, PINNED, main=PINNED)
    listed = manifest("org/tiny", locate(model(PINNED), [str(tmp_path)]))
    (hub / "snapshots" / PINNED).rename(hub / "snapshots" / OTHER)
    with pytest.raises(UserError, match=r"node n2: .*: wrong revision") as error:
        verify(listed, "n2")
    assert f"expected: revision {PINNED}\n  found:    {OTHER}" in str(error.value)


def test_a_plain_folder_of_another_revision_on_a_node(tmp_path: Path) -> None:
    plain = put_model(tmp_path / "tiny")
    put_note(plain, PINNED)
    listed = manifest("org/tiny", locate(model(PINNED), [str(tmp_path)]))
    put_note(plain, OTHER)
    with pytest.raises(UserError, match="wrong revision") as error:
        verify(listed, "n2")
    assert f"expected: revision {PINNED}\n  found:    {OTHER}" in str(error.value)


def test_unreadable_and_dangling_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = shared_model(tmp_path, shared=False)
    folder = Path(listed["folder"])
    (folder / SHARDS[0]).unlink()
    (folder / SHARDS[0]).symlink_to(SHARDS[0])

    def broken_disk(path: Path) -> str:
        if path.name == SHARDS[1]:
            raise OSError(5, "Input/output error", str(path))
        return file_sha256(path)

    monkeypatch.setattr("serve_repro.weights.hashing.file_sha256", broken_disk)
    with pytest.raises(UserError) as error:
        verify(listed, "n2")
    told = str(error.value)
    assert f"{SHARDS[0]}: file cannot be read" in told
    assert "found:    Too many levels of symbolic links" in told
    assert f"{SHARDS[1]}: file cannot be read" in told
    assert "found:    Input/output error" in told
    (folder / SHARDS[0]).unlink()
    (folder / SHARDS[0]).symlink_to("nowhere")
    with pytest.raises(UserError, match="dangling link\n  expected: a file at nowhere"):
        verify(listed, "n2")


def test_a_glance_sees_sizes_and_times_of_plain_folders_and_revisions_of_hub_ones(
    tmp_path: Path,
) -> None:
    plain = put_model(tmp_path / "one/tiny")
    where = sources(roots=[str(tmp_path / "one")])
    before = seen([model()], where)
    assert before == seen([model()], where)
    (plain / SHARDS[0]).touch()
    assert seen([model()], where) != before
    hub = put_hub(tmp_path / "two", PINNED, OTHER, main=PINNED)
    where = sources(roots=[str(tmp_path / "two")])
    unpinned = seen([model()], where)
    (hub / "refs/main").write_text(OTHER, encoding="utf-8")
    assert seen([model()], where) != unpinned
    assert seen([model(PINNED)], where) == seen([model(PINNED)], sources(roots=["gone"])) == ""


BASE = Path(__file__).parents[2]
SETTINGS = {"recipes": ["tiny-cpu-tp1pp2"], "site": "dev-slurm"}


def test_only_a_shared_root_lets_one_node_hash_for_all() -> None:
    sweep = Sweep(SETTINGS, BASE)
    assert sweep.first_node("tiny-cpu-tp1pp2") is None
    shared = {"shared_weight_roots": sweep.site.weight_roots}
    sweep.site = sweep.site.model_copy(update=shared)
    assert sweep.first_node("tiny-cpu-tp1pp2") == "node1"


@pytest.mark.parametrize("more", [{"shared_weight_roots": ["x"]}, {"download_weights_to": "x"}])
def test_a_root_that_is_shared_or_written_is_one_of_the_roots(more: dict[str, Any]) -> None:
    site = Sweep(SETTINGS, BASE).site.model_dump()
    with pytest.raises(UserError, match="root x is not one of weight_roots"):
        parse(site | more, Site, "site")


def test_a_named_folder_is_for_a_model_of_the_recipes() -> None:
    with pytest.raises(UserError, match="weight_overrides: none of the recipes has the model a/b"):
        Sweep(SETTINGS | {"weight_overrides": {"a/b": "/x"}}, BASE)
