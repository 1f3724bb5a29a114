"""Patches: what the series refuses, what a set's identity is made of, what ranks must have said."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import file_sha256, read_json
from serve_repro.errors import UserError
from serve_repro.patches.attestation import missing, read_attestations
from serve_repro.patches.bundle import build, check_targets
from serve_repro.patches.series import Patch, Series, choose, read_series, set_id
from serve_repro.recipe.load import parse

BASE = Path(__file__).parents[2]
SHA = "0" * 64


def hook(name: str = "my-hook", **fields: Any) -> dict[str, Any]:
    """A hook's entry in series.yaml, as YAML reads it."""
    return {
        "id": name,
        "kind": "hook",
        "why": "it is a test",
        "upstream": None,
        "versions": ["vllm 1"],
        "expires": date(2030, 1, 1),
        "hook": name.replace("-", "_"),
        "targets": [{"module": "victim.part", "sha256": {"vllm 1": SHA}}],
        "processes": ["worker"],
        **fields,
    }


def diff(name: str = "my-diff", **fields: Any) -> dict[str, Any]:
    """A diff's entry."""
    entry = hook(name) | {"kind": "diff", "url": "https://example.org/a.patch", "sha256": SHA}
    for key in ("hook", "targets", "processes"):
        del entry[key]
    return entry | fields


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


def series_of(*entries: dict[str, Any]) -> Series:
    return parse({"patches": list(entries)}, Series, "series.yaml")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (without(hook(), "hook"), "my-hook: a hook needs 'hook', 'targets' and 'processes'"),
        (hook(targets=[]), "my-hook: a hook needs 'hook', 'targets' and 'processes'"),
        (without(hook(), "processes"), "my-hook: a hook needs 'hook', 'targets' and 'processes'"),
        (without(diff(), "url"), "my-diff: a diff needs 'url' and 'sha256'"),
        (without(diff(), "sha256"), "my-diff: a diff needs 'url' and 'sha256'"),
        (diff(kind="script", sha256=None), "my-diff: a script needs 'url' and 'sha256'"),
        (diff(url="http://example.org/a.patch"), "patches.0.url: string should match pattern"),
        (diff(sha256="abc"), "patches.0.sha256: string should match pattern"),
        (without(hook(), "expires"), "patches.0.expires: this key is missing"),
        (hook(processes=["workers"]), "patches.0.processes.0: input should be 'worker', 'engine'"),
        (
            hook(versions=["vllm 1", "vllm 2"]),
            "my-hook: victim.part needs one hash for each of the versions ['vllm 1', 'vllm 2'], "
            "and has ['vllm 1']",
        ),
        (hook(procesess=[]), "patches.0.procesess: unknown key, did you mean 'processes'?"),
    ],
)
def test_a_patch_has_the_fields_of_its_kind(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as error:
        series_of(entry)
    assert told in str(error.value)


def test_an_id_stands_once() -> None:
    with pytest.raises(UserError, match="the id same stands twice"):
        series_of(hook("same"), diff("same"))


def test_chosen_patches_come_in_the_recipes_order() -> None:
    series = series_of(hook("one"), hook("two"), hook("three"))
    assert [patch.id for patch in choose(series, ["three", "one"], "x")] == ["three", "one"]


def test_an_unknown_patch_is_told_with_the_nearest_one() -> None:
    series = read_series(BASE / "patches")
    with pytest.raises(UserError) as error:
        choose(series, ["cpu-pipelin-eager"], "recipe.yaml: patches")
    assert str(error.value) == (
        "recipe.yaml: patches: unknown patch 'cpu-pipelin-eager', did you mean 'cpu-pipeline-eager'?"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A patches folder with two hooks."""
    package = tmp_path / "patches/hooks/serve_repro_hooks"
    package.mkdir(parents=True)
    for name in ("__init__", "one", "two"):
        (package / f"{name}.py").write_text(f'"""{name}"""\n', encoding="utf-8")
    return tmp_path / "patches"


def patches(*entries: dict[str, Any]) -> list[Patch]:
    return series_of(*entries).patches


def test_a_sets_identity_follows_what_its_patches_do_and_not_what_is_said_of_them(folder: Path) -> None:
    before = set_id(patches(hook("one"), hook("two")), folder)
    assert set_id(patches(hook("one", why="other words", upstream="x"), hook("two")), folder) == before
    other_target = [{"module": "victim.part", "sha256": {"vllm 1": "1" * 64}}]
    assert set_id(patches(hook("one", targets=other_target), hook("two")), folder) != before
    assert set_id(patches(hook("one", processes=["api"]), hook("two")), folder) != before
    assert set_id(patches(hook("one", superseded_by="victim.own"), hook("two")), folder) != before
    assert set_id(patches(hook("two"), hook("one")), folder) != before
    assert set_id(patches(hook("one")), folder) != before


@pytest.mark.parametrize("name", ["one", "__init__"])
def test_a_sets_identity_follows_the_hooks_code_and_its_loader(folder: Path, name: str) -> None:
    before = set_id(patches(hook("one")), folder)
    (folder / f"hooks/serve_repro_hooks/{name}.py").write_text("x = 1\n", encoding="utf-8")
    assert set_id(patches(hook("one")), folder) != before


def test_another_hooks_code_changes_nothing(folder: Path) -> None:
    before = set_id(patches(hook("one")), folder)
    (folder / "hooks/serve_repro_hooks/two.py").write_text("x = 1\n", encoding="utf-8")
    assert set_id(patches(hook("one")), folder) == before


def test_a_hook_without_a_module_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"three\.py: the hook three has no module"):
        set_id(patches(hook("three")), folder)


def test_a_built_set_is_a_copy_that_later_edits_cannot_reach(folder: Path, tmp_path: Path) -> None:
    chosen = patches(hook("one"))
    built = build(chosen, folder, tmp_path / "built")
    (folder / "hooks/serve_repro_hooks/one.py").write_text("x = 1\n", encoding="utf-8")
    copy = tmp_path / "built/hooks/serve_repro_hooks/one.py"
    assert copy.read_text(encoding="utf-8") == '"""one"""\n'
    assert read_json(tmp_path / "built/set.json") == built
    assert built["hooks"] == [
        {
            "id": "one",
            "hook": "one",
            "targets": [{"module": "victim.part", "sha256": {"vllm 1": SHA}}],
            "superseded_by": None,
            "processes": ["worker"],
        }
    ]


def test_a_set_that_is_built_again_keeps_nothing_of_the_last_one(folder: Path, tmp_path: Path) -> None:
    build(patches(hook("one"), hook("two")), folder, tmp_path / "built")
    (folder / "hooks/serve_repro_hooks/two.py").unlink()
    build(patches(hook("one")), folder, tmp_path / "built")
    assert not (tmp_path / "built/hooks/serve_repro_hooks/two.py").exists()


def test_others_files_are_copied_and_stand_in_the_recipes_order(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_text("theirs", encoding="utf-8")
    chosen = patches(diff("second"), hook("one"), diff("first"))
    fetched = dict.fromkeys(("first", "second"), tmp_path / "a.patch")
    built = build(chosen, folder, tmp_path / "built", fetched)
    assert [other["id"] for other in built["others"]] == ["second", "first"]
    copy = tmp_path / "built" / built["others"][0]["file"]
    assert copy.read_text(encoding="utf-8") == "theirs"
    build(chosen[1:2], folder, tmp_path / "built")
    assert not copy.exists()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Installed software: a package with one module."""
    (tmp_path / "packages/victim").mkdir(parents=True)
    for name in ("__init__", "part"):
        text = f"name = {name!r}\n"
        (tmp_path / f"packages/victim/{name}.py").write_text(text, encoding="utf-8")
    return tmp_path / "packages"


def set_of(*targets: tuple[str, dict[str, str]], superseded_by: str | None = None) -> dict[str, Any]:
    listed = [{"module": module, "sha256": sha256} for module, sha256 in targets]
    return {"hooks": [{"id": "one", "targets": listed, "superseded_by": superseded_by}]}


def set_with_target(module: str, sha256: str) -> dict[str, Any]:
    return set_of((module, {"vllm 1": sha256}))


def test_a_target_with_the_expected_source_is_listed(packages: Path) -> None:
    sha256 = file_sha256(packages / "victim/part.py")
    seen = check_targets(set_with_target("victim.part", sha256), packages, "n1")
    assert seen == [{"patch": "one", "module": "victim.part", "sha256": sha256}]


def test_a_target_may_be_a_package(packages: Path) -> None:
    """The loader in the ranks finds a package's __init__.py, so the check must as well."""
    sha256 = file_sha256(packages / "victim/__init__.py")
    assert check_targets(set_with_target("victim", sha256), packages, "n1")[0]["sha256"] == sha256


def test_a_target_with_another_source_names_node_file_and_both_hashes(packages: Path) -> None:
    with pytest.raises(UserError, match=r"one was written for another victim\.part") as error:
        check_targets(set_with_target("victim.part", SHA), packages, "n1")
    told = str(error.value)
    assert f"node n1: {packages / 'victim/part.py'}" in told
    assert f"expected: sha256 {SHA} (vllm 1)" in told
    assert f"found:    {file_sha256(packages / 'victim/part.py')}" in told


def test_a_target_that_is_not_installed_is_refused(packages: Path) -> None:
    with pytest.raises(UserError, match=r"found: +no file"):
        check_targets(set_with_target("victim.gone", SHA), packages, "n1")


def test_a_hook_may_be_for_several_versions_and_all_its_targets_are_of_one(packages: Path) -> None:
    package, part = (file_sha256(packages / f"victim/{name}.py") for name in ("__init__", "part"))
    other = "1" * 64
    good = set_of(
        ("victim", {"vllm 1": other, "vllm 2": package}),
        ("victim.part", {"vllm 1": SHA, "vllm 2": part}),
    )
    assert [seen["sha256"] for seen in check_targets(good, packages, "n1")] == [package, part]
    mixed = set_of(
        ("victim", {"vllm 1": package, "vllm 2": other}),
        ("victim.part", {"vllm 1": SHA, "vllm 2": part}),
    )
    with pytest.raises(UserError, match=r"targets of the patch one are of different versions") as error:
        check_targets(mixed, packages, "n1")
    assert "victim: vllm 1; victim.part: vllm 2" in str(error.value)


def test_a_hook_is_refused_where_the_software_has_its_own_remedy(packages: Path) -> None:
    """Before its targets are looked at: those differ there too, and that would be the lesser reason."""
    wanted = set_of(("victim.part", {"vllm 1": SHA}), superseded_by="victim.sizing")
    (packages / "victim/sizing.py").touch()
    with pytest.raises(UserError) as error:
        check_targets(wanted, packages, "n1")
    assert "the patch one is not needed: this software has its own remedy, victim.sizing" in str(
        error.value
    )


def test_the_block_cap_is_refused_from_the_release_that_aligns_the_counts_itself(tmp_path: Path) -> None:
    folder = tmp_path / "vllm/v1/simple_kv_offload"
    folder.mkdir(parents=True)
    (folder / "sizing.py").touch()
    built = build(
        choose(read_series(BASE / "patches"), ["kv-offload-block-cap"], "x"),
        BASE / "patches",
        tmp_path / "built",
    )
    with pytest.raises(UserError, match=r"has its own remedy, vllm\.v1\.simple_kv_offload\.sizing"):
        check_targets(built, tmp_path, "n1")


def said(patch: str, process: str = "worker", reason: str | None = None, **more: Any) -> dict[str, Any]:
    line = {"patch": patch, "process": process, "pid": 1, "installed": reason is None, **more}
    return line if reason is None else line | {"reason": reason}


EVERYWHERE = {"id": "both", "processes": ["worker", "engine", "api"]}
WORKERS = {"id": "mine", "processes": ["worker"]}


@pytest.mark.parametrize(
    ("attested", "told"),
    [
        ([[said("mine")], [said("mine")]], []),
        ([[said("mine")], []], ["rank 1: 0 of 1 worker reported mine"]),
        ([[], []], ["rank 0: 0 of 1 worker reported mine", "rank 1: 0 of 1 worker reported mine"]),
        ([[said("mine", "engine")], [said("mine")]], ["rank 0: 0 of 1 worker reported mine"]),
        ([[said("other")], [said("mine")]], ["rank 0: 0 of 1 worker reported mine"]),
        ([[said("mine")], [said("mine", reason="no")]], ["rank 1: mine refused: no"]),
        ([[said("mine"), said("mine", reason="no")], [said("mine")]], ["rank 0: mine refused: no"]),
    ],
)
def test_each_ranks_workers_must_have_said_that_the_hook_is_in(
    attested: list[list[dict[str, Any]]], told: list[str]
) -> None:
    assert missing(attested, [WORKERS], 1) == told


def test_only_rank_0_has_an_engine_and_an_api() -> None:
    rank_0 = [said("both", kind) for kind in ("worker", "engine", "api")]
    assert missing([rank_0, [said("both")]], [EVERYWHERE], 1) == []
    assert missing([rank_0[:1], [said("both")]], [EVERYWHERE], 1) == [
        "rank 0: 0 of 1 engine reported both",
        "rank 0: 0 of 1 api reported both",
    ]


def test_all_workers_of_a_rank_must_have_said_so() -> None:
    """Seven silent workers of eight must not pass."""
    eight = [said("mine", pid=pid) for pid in range(8)]
    assert missing([eight], [WORKERS], 8) == []
    assert missing([eight[:7]], [WORKERS], 8) == ["rank 0: 7 of 8 worker reported mine"]
    assert missing([eight[:1] * 8], [WORKERS], 8) == ["rank 0: 1 of 8 worker reported mine"]


def test_without_hooks_nothing_is_missing() -> None:
    assert missing([[], []], [], 1) == []


def test_a_line_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "attestations.jsonl"
    assert read_attestations(path) == []
    path.write_text(json.dumps(said("mine")) + '\n{"patch": "mine", "insta', encoding="utf-8")
    assert read_attestations(path) == [said("mine")]


def test_shipped_hooks_that_nobody_lists_do_not_exist() -> None:
    listed = {patch.hook for patch in read_series(BASE / "patches").patches if patch.hook}
    package = BASE / "patches/hooks/serve_repro_hooks"
    assert {path.stem for path in package.glob("*.py")} - {"__init__"} == listed


def test_a_built_set_holds_no_compiled_leftovers(folder: Path, tmp_path: Path) -> None:
    (folder / "hooks/serve_repro_hooks/__pycache__").mkdir()
    build(patches(hook("one")), folder, tmp_path / "built")
    assert not list((tmp_path / "built").rglob("__pycache__"))
