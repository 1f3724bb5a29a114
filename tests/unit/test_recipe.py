"""Recipes, sites and settings: what is refused, and how it is told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_repro.errors import UserError
from serve_repro.recipe.load import load, parse
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.settings import Settings
from serve_repro.recipe.site import Site
from serve_repro.sweep import Sweep

BASE = Path(__file__).parents[2]
TINY = BASE / "config/recipes/tiny-cpu-tp1pp2.yaml"
SPEC = BASE / "config/recipes/tiny-cpu-spec.yaml"
LAPTOP = BASE / "config/sites/laptop.yaml"


def edited(path: Path, *keys: str, value: Any) -> dict[str, Any]:
    """A shipped document with one value set; `...` takes the key out."""
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    part = document
    for key in keys[:-1]:
        part = part[key]
    if value is ...:
        del part[keys[-1]]
    else:
        part[keys[-1]] = value
    return document


@pytest.mark.parametrize("path", sorted((BASE / "config/recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_recipes_load(path: Path) -> None:
    assert load(path, Recipe).name == path.stem


@pytest.mark.parametrize("path", sorted((BASE / "config/sites").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_sites_load(path: Path) -> None:
    assert load(path, Site).name == path.stem


@pytest.mark.parametrize(
    ("keys", "value", "told"),
    [
        (("toplogy",), {}, "toplogy: unknown key, did you mean 'topology'?"),
        (
            ("serve", "max_model_length"),
            1,
            "max_model_length: unknown key, did you mean 'max_model_len'?",
        ),
        (("replay", "dataset", "made", "sesions"), 1, "did you mean 'sessions'?"),
        (("serve", "max_model_len"), ..., "serve.max_model_len: this key is missing"),
        (
            ("serve", "max_model_len"),
            "long",
            "max_model_len: input should be a valid integer, found 'long'",
        ),
        (("serve", "flags", "tensor-parallel-size"), 2, "is derived from topology.tensor_parallel"),
        (("concurrencies",), [4, 2], "concurrencies must be positive, rising and without repeats"),
        (("kv_offload", "dram_utilization"), 0.5, "exactly one of dram_utilization and bytes_per_rank"),
    ],
)
def test_a_wrong_recipe_is_told_by_key(keys: tuple[str, ...], value: Any, told: str) -> None:
    with pytest.raises(UserError) as error:
        parse(edited(TINY, *keys, value=value), Recipe, "tiny.yaml")
    assert told in str(error.value)
    assert str(error.value).startswith("tiny.yaml: ")


def test_every_mistake_is_told_at_once() -> None:
    document = edited(TINY, "toplogy", value={}) | {"recipient": 1}
    with pytest.raises(UserError, match=r"toplogy.*recipient"):
        parse(document, Recipe, "tiny.yaml")


def test_acceptance_belongs_to_synthetic_rejection() -> None:
    document = edited(
        BASE / "config/recipes/tiny-cpu-spec.yaml", "speculation", "rejection", value="block"
    )
    with pytest.raises(UserError, match="acceptance_length belongs to rejection: synthetic"):
        parse(document, Recipe, "spec.yaml")


def test_acceptance_cannot_exceed_what_is_drafted() -> None:
    document = edited(SPEC, "speculation", "acceptance_length", value=3.5)
    with pytest.raises(UserError, match="above draft_tokens"):
        parse(document, Recipe, "spec.yaml")


def test_a_site_cannot_use_a_node_that_it_excludes() -> None:
    cluster = BASE / "config/sites/mi355x-amds.yaml"
    document = edited(cluster, "nodes", value=["mia1-p01-g09", "mia1-p02-g17"])
    with pytest.raises(UserError, match="mia1-p01-g09 stands in nodes and in excludes"):
        parse(document, Site, "site.yaml")


def test_a_container_site_needs_its_container_section() -> None:
    with pytest.raises(UserError, match="runtime docker needs the section 'container'"):
        parse(edited(LAPTOP, "runtime", value="docker"), Site, "site.yaml")


def test_name_and_file_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(TINY.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UserError, match="name and file name differ"):
        load(path, Recipe)


def test_a_repeated_key_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("site: a\nrecipes: [b]\nsite: c\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"twice.yaml:3: .*the key 'site' stands twice"):
        load(path, Settings)


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("recipes: [a\nsite: b\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"broken.yaml:2: is not valid YAML"):
        load(path, Settings)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"recipes": ["tiny-cpu-tp1p2"], "site": "laptop"}, "did you mean 'tiny-cpu-tp1pp2'?"),
        ({"recipes": ["tiny-cpu-tp1pp2"], "site": "labtop"}, "did you mean 'laptop'?"),
        ({"recipes": ["tiny-cpu-tp1pp2"], "sight": "laptop"}, "did you mean 'site'?"),
        ({"recipes": ["tiny-cpu-tp1pp2"], "site": "mi355x-amds"}, "another accelerator than this site"),
        (
            {"recipes": ["tiny-cpu-tp1pp2"], "site": "laptop", "concurrencies": [3]},
            "no point at concurrency 3",
        ),
        (
            {"recipes": ["tiny-cpu-tp1pp2"], "site": "laptop", "patches": {"k3-tritom": True}},
            "config: patches: unknown patch 'k3-tritom', did you mean 'k3-triton'?",
        ),
        (
            {"recipes": ["tiny-cpu-tp1pp2"], "site": "laptop", "patches": {"k3-triton": False}},
            "config: patches: no recipe of this run uses the patch k3-triton",
        ),
        (
            {"recipes": ["tiny-cpu-tp1pp2"], "site": "laptop", "patches": {"k3-tuned-gemm": True}},
            "tuned_gemm: rows for the tuned GEMM table come by patches of kind data",
        ),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(config: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as error:
        Sweep(config, BASE)
    assert told in str(error.value)


def test_switches_change_what_is_planned_and_no_more() -> None:
    config = {"recipes": ["kimik3-fp4-mi355x-vllm-agentic-tp8pp2"], "site": "mi355x-amds"}
    name = config["recipes"][0]
    sweep = Sweep(config, BASE)
    off = Sweep({**config, "patches": {"k3-tuned-gemm": False, "kv-block-ranges": True}}, BASE)
    before, after = sweep.plan(name, 4), off.plan(name, 4)
    assert set(before.patches) - set(after.patches) == {"k3-tuned-gemm"}
    assert after.patches[-1] == "kv-block-ranges"
    assert any("AITER_CONFIG_GEMM_BF16" in word for word in before.ranks[0].start.argv)
    assert not any("AITER_CONFIG_GEMM_BF16" in word for word in after.ranks[0].start.argv)
    assert sweep.patch_set_id(name) != off.patch_set_id(name)


def test_what_is_past_its_date_is_told() -> None:
    settings = {"recipes": ["kimik3-fp4-mi355x-vllm-agentic-tp8pp2"], "site": "mi355x-amds"}
    sweep = Sweep(settings, BASE)
    last = max(entry.until for entry in sweep.site.excludes)
    assert sweep.overdue(last - timedelta(days=400)) == []
    told = " ".join(sweep.overdue(last + timedelta(days=1)))
    assert "node mia1-p01-g09 is excluded (excluded by the publication's launcher) until" in told
    assert "patch vllm-50514-01 should have been looked at by" in told


def test_two_recipes_may_share_made_things_and_not_redefine_them(tmp_path: Path) -> None:
    settings = {"recipes": ["tiny-cpu-tp1pp2", "tiny-cpu-spec"], "site": "laptop"}
    assert set(Sweep(settings, BASE).made_models()) == {"tiny-llama", "tiny-llama-draft"}
    for folder in ("config", "patches", "envs"):
        (tmp_path / folder).symlink_to(BASE / folder)
    (tmp_path / "config").unlink()
    (tmp_path / "config/recipes").mkdir(parents=True)
    (tmp_path / "config/sites").symlink_to(BASE / "config/sites")
    for name, seed in (("tiny-cpu-tp1pp2", 0), ("tiny-cpu-spec", 7)):
        document = edited(BASE / f"config/recipes/{name}.yaml", "model", "made", "seed", value=seed)
        (tmp_path / f"config/recipes/{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(UserError, match="tiny-llama is made from other numbers than in tiny-cpu-tp1pp2"):
        Sweep(settings, tmp_path)
