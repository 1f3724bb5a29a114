"""An entry of a master config: what of it becomes a recipe, and that nothing else is lost unseen."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_repro.documents import read_yaml
from serve_repro.errors import UserError
from serve_repro.inferencex.importer import Imported, read_entry, render
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe

from .plans import BASE

K3 = "kimik3-fp4-mi355x-vllm-agentic-tp8pp2"
SHIPPED = read_yaml(BASE / f"config/recipes/{K3}.yaml")

ENTRY: dict[str, Any] = {
    "image": "vllm/vllm-openai-rocm:nightly-cb8104839c141609d99f1254459ef3a4f1bd4263",
    "model": "moonshotai/Kimi-K3",
    "model-prefix": "kimik3",
    "runner": "cluster:mi355x-amds",
    "precision": "fp4",
    "framework": "vllm",
    "multinode": True,
    "disagg": False,
    "scenarios": {
        "agentic-coding": [
            {
                "dram-utilization": 0.5,
                "search-space": [
                    {
                        "spec-decoding": "mtp",
                        "kv-offloading": "dram",
                        "kv-offload-backend": {"name": "vllm-simple"},
                        "conc-list": [4, 8, 10, 12, 16, 20],
                        "prefill": {
                            "num-worker": 1,
                            "tp": 8,
                            "pp": 2,
                            "ep": 1,
                            "dp-attn": False,
                            "additional-settings": ["ASYNC_SCHEDULING=false"],
                        },
                        "decode": {"num-worker": 0, "tp": 8, "pp": 2, "ep": 1, "dp-attn": False},
                    }
                ],
            }
        ]
    },
}
"""The published entry's keys and values, one by one."""


def space_of(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = entry["scenarios"]["agentic-coding"][0]["search-space"][0]
    return found


def changed(where: str, value: Any, part: str | None = None) -> dict[str, Any]:
    """The entry with one other value: at its top, or in its search space (or a part of that)."""
    entry = deepcopy(ENTRY)
    if part is None:
        entry[where] = value
    else:
        space = space_of(entry)
        (space if part == "" else space[part])[where] = value
    return entry


def leaves(value: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict):
        parts = [leaves(part, (*at, key)) for key, part in value.items()]
        return {path: leaf for part in parts for path, leaf in part.items()}
    return {at: value}


def at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def test_what_it_carries_equals_the_shipped_recipe() -> None:
    told = leaves(read_entry(K3, ENTRY).recipe)
    del told["title",]
    assert {path: at(SHIPPED, path) for path in told} == told
    assert told["concurrencies",] == [4, 8, 10, 12, 16, 20]
    assert told["serve", "async_scheduling"] is False
    assert told["kv_offload", "dram_utilization"] == 0.5


def test_with_what_it_asks_for_filled_in_it_loads_and_is_the_shipped_recipe(tmp_path: Path) -> None:
    """First what is missing, then what it says to look into; and no other key of its sections."""
    imported = read_entry(K3, ENTRY)
    path = tmp_path / f"{K3}.yaml"
    recipe = yaml.safe_load(render(imported))
    with pytest.raises(UserError, match="this key is missing"):
        path.write_text(render(imported), encoding="utf-8")
        load(path, Recipe)
    fill(recipe, [*imported.missing, "speculation.acceptance_length"])
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    assert load(path, Recipe).topology.pipeline_parallel == 2
    fill(recipe, [*imported.look, "title"])
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    assert load(path, Recipe) == load(BASE / f"config/recipes/{K3}.yaml", Recipe)


def fill(recipe: dict[str, Any], keys: list[str]) -> None:
    """Put the shipped recipe's values where a person would."""
    for key in keys:
        *outer, last = key.split(".")
        at(recipe, tuple(outer))[last] = at(SHIPPED, tuple(key.split(".")))


def test_it_says_what_a_person_must_fill_in() -> None:
    assert read_entry(K3, ENTRY).missing == [
        "serve.max_model_len",
        "serve.prefix_caching",
        "kv_offload.lazy",
        "speculation.method",
        "speculation.draft",
        "speculation.draft_tokens",
        "speculation.rejection",
        "deadlines",
        "replay",
    ]


def test_everything_else_of_the_entry_is_told() -> None:
    left = "\n".join(read_entry(K3, ENTRY).left)
    assert "runner: 'cluster:mi355x-amds'" in left
    for key in ("tp: 8", "pp: 2", "ep: 1", "dp-attn: False"):
        assert f"decode.{key}; there is no decode worker" in left


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (changed("router", {"name": "x"}), f"{K3}.router: {{'name': 'x'}}"),
        (changed("conc-end", 64, ""), "search-space[0].conc-end: 64"),
        (changed("kv-offload-backend", {"name": "vllm-simple", "version": "2"}, ""), "version: '2'"),
        (changed("additional-settings", ["MAX_NUM_SEQS=9"], "prefill"), "'MAX_NUM_SEQS=9'; a variable"),
        (changed("hardware", "x", "prefill"), "prefill.hardware: 'x'"),
        (changed("model-prefix", "k3"), "model-prefix: 'k3'"),
    ],
)
def test_a_key_that_no_recipe_has_is_told(entry: dict[str, Any], told: str) -> None:
    assert any(told in line for line in read_entry(K3, entry).left)


def test_an_unknown_backend_leaves_its_connector_to_be_filled_in() -> None:
    found = read_entry(K3, changed("kv-offload-backend", {"name": "other"}, ""))
    assert "kv_offload.connector" in found.missing


def test_without_offload_and_speculation_there_are_no_such_sections() -> None:
    entry = changed("kv-offloading", "none", "")
    space = space_of(entry)
    space["spec-decoding"] = "none"
    del space["kv-offload-backend"]
    found = read_entry(K3, entry)
    assert {"kv_offload", "speculation"}.isdisjoint(found.recipe)
    assert "agentic-coding[0].dram-utilization: 0.5" in "\n".join(found.left)
    assert not any("kv_offload" in key or "speculation" in key for key in found.look)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (changed("framework", "sglang"), "framework: cannot be a recipe"),
        (changed("multinode", False), "multinode: cannot be a recipe"),
        (changed("disagg", True), "disagg: cannot be a recipe"),
        (changed("num-worker", 1, "decode"), "decode.num-worker: cannot be a recipe"),
        (changed("ep", 8, "prefill"), "expert parallelism"),
        (changed("dp-attn", True, "prefill"), "data parallelism"),
        (changed("dcp-size", 4, "prefill"), "context parallelism"),
        (changed("kv-offloading", "disk", ""), "none or dram"),
        (changed("conc-list", "all", ""), "concurrencies"),
        (changed("scenarios", {"fixed-seq-len": []}), "agentic-coding: this key is missing"),
        (changed("scenarios", {"agentic-coding": [{}, {}]}), "2 elements"),
        (changed("scenarios", 3), "is not a mapping"),
    ],
)
def test_what_would_be_another_measurement_is_refused(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        read_entry(K3, entry)


def test_the_program_prints_a_recipe_and_overwrites_none(tmp_path: Path) -> None:
    config, output = tmp_path / "master.yaml", tmp_path / f"{K3}.yaml"
    config.write_text(yaml.safe_dump({K3: ENTRY}), encoding="utf-8")
    printed = run(config, K3)
    assert printed.returncode == 0, printed.stderr
    assert "9 keys to fill in" in printed.stderr
    assert "# Fill in before it loads:\n#   serve.max_model_len\n" in printed.stdout
    assert run(config, K3, "--output", str(output)).returncode == 0
    assert output.read_text(encoding="utf-8") == printed.stdout
    again = run(config, K3, "--output", str(output))
    assert again.returncode == 1 and "not overwritten" in again.stderr
    unknown = run(config, "kimik3")
    assert unknown.returncode == 1 and "Traceback" not in unknown.stderr and K3 in unknown.stderr


def run(*words: object) -> subprocess.CompletedProcess[str]:
    program = BASE / "scripts/import_recipe.py"
    return subprocess.run(
        [sys.executable, str(program), *map(str, words)], capture_output=True, text=True, check=False
    )


def test_each_list_stands_in_the_comments_once() -> None:
    found = Imported({"name": "x"}, ["a"], [], ["b"], ["c"])
    assert render(found).count("#   ") == 3
