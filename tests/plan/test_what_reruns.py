"""The promises about reruns: what an edit makes stale, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from serve_repro.driver import VERSION

from .conftest import Checkout, name_a_diff

RECIPE = "config/recipes/tiny-cpu-tp1pp2.yaml"
RESULTS = "results/tiny-cpu-tp1pp2"
POINTS = {f"{RESULTS}/conc{level}/replay.json" for level in (1, 2, 4)}
PLANS = {f"{RESULTS}/conc{level}/plan.json" for level in (1, 2, 4)}
PLOTS = {
    f"results/plots/{picture}.{kind}"
    for picture in ("throughput_against_interactivity", "by_concurrency")
    for kind in ("svg", "png")
}
PROVENANCE = "results/ro-crate-metadata.json"
PATCHES = {
    f"{RESULTS}/patches/{name}.json" for name in ("set", "originals", "overlay", "nodes/localhost")
}
SUMMARY = {"results/summary.csv", "results/verdict.csv", "results/report.html", PROVENANCE, *PLOTS}


def measured(points: set[str]) -> set[str]:
    """Points that are measured again, and all that is made from them."""
    courses = {
        point.replace("results/", "results/plots/").replace("/replay.json", ".svg") for point in points
    }
    aggregates = {point.replace("/replay.json", "/inferencex.json") for point in points}
    return points | courses | aggregates | SUMMARY


def test_nothing_changed_nothing_to_do(checkout: Checkout) -> None:
    assert checkout.stale() == set()


def test_one_serve_flag_makes_all_points_of_the_recipe_stale(checkout: Checkout) -> None:
    checkout.edit(RECIPE, "max-num-seqs: 16", "max-num-seqs: 8")
    assert checkout.stale() == PLANS | measured(POINTS)


def test_a_tag_that_this_site_does_not_use_makes_nothing_stale(checkout: Checkout) -> None:
    tagged = "environment: serve-cpu\n  reference: example/image:tag"
    checkout.edit(RECIPE, "environment: serve-cpu", tagged)
    assert checkout.stale() == set()


def test_a_new_concurrency_is_one_new_point(checkout: Checkout) -> None:
    checkout.edit(RECIPE, "concurrencies: [1, 2, 4]", "concurrencies: [1, 2, 3, 4]")
    new = measured({f"{RESULTS}/conc3/replay.json"})
    assert checkout.stale() == {f"{RESULTS}/conc3/plan.json"} | new


def test_more_repeats_are_new_runs_beside_the_first(checkout: Checkout) -> None:
    append(checkout.folder / "config/tiny.yaml", "repeats: 3\n")
    new = {f"{RESULTS}/conc{level}/rep{run}/replay.json" for level in (1, 2, 4) for run in (2, 3)}
    assert checkout.stale() == measured(new)


def test_forcing_one_point_reruns_that_point_and_the_summary(checkout: Checkout) -> None:
    point = f"{RESULTS}/conc2/replay.json"
    assert checkout.stale(["results/summary.csv"], forced=[point]) == {point, "results/summary.csv"}


def test_a_lost_point_is_made_again_and_no_other(checkout: Checkout) -> None:
    point = f"{RESULTS}/conc2/replay.json"
    (checkout.folder / point).unlink()
    assert checkout.stale() == measured({point})


def test_a_comment_in_the_summariser_reruns_the_summary_and_what_follows(checkout: Checkout) -> None:
    append(checkout.folder / "scripts/summarise.py", "# a comment\n")
    assert checkout.stale() == SUMMARY


def test_a_comment_in_a_module_of_the_report_reruns_the_report_alone(checkout: Checkout) -> None:
    append(checkout.folder / "scripts/serve_repro/table/report.py", "# a comment\n")
    assert checkout.stale() == {"results/report.html", PROVENANCE}


def test_a_comment_in_the_driving_code_reruns_nothing(checkout: Checkout) -> None:
    for name in (
        "launch/ranks.py",
        "launch/readiness.py",
        "client/run.py",
        "point/measure.py",
        "driver.py",
    ):
        append(checkout.folder / "scripts/serve_repro" / name, "# a comment\n")
    append(checkout.folder / "scripts/replay.py", "# a comment\n")
    assert checkout.stale() == set()


def test_a_new_version_of_the_driving_code_reruns_all_points(checkout: Checkout) -> None:
    checkout.edit("scripts/serve_repro/driver.py", f"VERSION = {VERSION}", "VERSION = 1000")
    assert checkout.stale() == measured(POINTS)


def test_a_readme_a_comment_and_an_unread_key_rerun_nothing(checkout: Checkout) -> None:
    append(checkout.folder / "README.md", "\nMore words.\n")
    append(checkout.folder / RECIPE, "# a comment\n")
    append(checkout.folder / "config/sites/laptop.yaml", "# a comment\n")
    append(checkout.folder / "patches/series.yaml", "# a comment\n")
    append(checkout.folder / "envs/client/lock.txt", "# a comment\n")
    checkout.edit(RECIPE, "title: Tiny", "title: Very tiny")
    checkout.edit("config/sites/laptop.yaml", "title: This machine", "title: My machine")
    assert checkout.stale() == set()


def test_another_order_of_keys_reruns_nothing(checkout: Checkout) -> None:
    checkout.edit(
        RECIPE, "    layers: 4\n    hidden_size: 128\n", "    hidden_size: 128\n    layers: 4\n"
    )
    assert checkout.stale() == set()


def test_another_checkout_path_reruns_nothing(checkout: Checkout, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "deeper"
    moved.parent.mkdir()
    shutil.move(checkout.folder, moved)
    assert Checkout(moved).stale() == set()


def test_touched_files_with_the_same_bytes_rerun_nothing(checkout: Checkout) -> None:
    for path in checkout.folder.rglob("*"):
        inside = path.relative_to(checkout.folder).parts[0]
        if path.is_file() and inside in ("scripts", "rules", "config", "envs", "patches", "Snakefile"):
            path.touch()
    assert checkout.stale() == set()


def test_one_hook_makes_the_recipes_that_use_it_stale(checkout: Checkout) -> None:
    append(checkout.folder / "patches/hooks/serve_repro_hooks/cpu_pipeline_eager.py", "# a comment\n")
    assert checkout.stale() == PATCHES | measured(POINTS)


def test_another_hash_of_a_file_of_others_makes_the_recipes_that_use_it_stale(
    checkout: Checkout,
) -> None:
    name_a_diff(checkout.folder, "first.patch", "other contents")
    assert checkout.stale() == PATCHES | measured(POINTS)


def test_another_address_of_the_same_file_reruns_nothing(checkout: Checkout) -> None:
    name_a_diff(checkout.folder, "moved.patch", "it is not applied here")
    assert checkout.stale() == set()


def test_another_hash_of_a_file_that_no_recipe_uses_reruns_nothing(checkout: Checkout) -> None:
    unused = "d1b21f32fbef9f9a175ca5f952348ca437cbe9571c9923924c1a661bcdb95ee3"
    checkout.edit("patches/series.yaml", unused, "f" * 64)
    assert checkout.stale() == set()


@pytest.mark.parametrize(
    ("switches", "stale"),
    [
        ("{of-others: true, cpu-host-kv-copies: false}", PATCHES),
        ("{of-others: true, cpu-synthetic-acceptance: true}", PATCHES),
        # On already, by the recipe itself.
        ("{of-others: true, cpu-pipeline-eager: true}", set()),
        # Without the one of others, nothing is taken from the image any more.
        ("{cpu-pipeline-eager: true}", PATCHES - {f"{RESULTS}/patches/originals.json"}),
    ],
)
def test_a_switch_makes_stale_what_it_changes(
    checkout: Checkout, switches: str, stale: set[str]
) -> None:
    checkout.edit("config/tiny.yaml", "{of-others: true}", switches)
    assert checkout.stale() == (stale | PLANS | measured(POINTS) if stale else set())


def test_a_hook_that_the_recipe_does_not_use_reruns_nothing(checkout: Checkout) -> None:
    append(checkout.folder / "patches/hooks/serve_repro_hooks/cpu_synthetic_acceptance.py", "# x\n")
    assert checkout.stale() == set()


def test_the_traces_numbers_make_traces_and_points_stale(checkout: Checkout) -> None:
    checkout.edit(RECIPE, "      sessions: 6", "      sessions: 7")
    traces = {"resources/made/traces/made-agentic-tiny/manifest.json"}
    assert checkout.stale() == traces | measured(POINTS)


def test_a_pin_of_the_client_makes_the_client_and_the_points_stale(checkout: Checkout) -> None:
    checkout.edit("envs/client/lock.txt", "agentx-harness==1.0.12", "agentx-harness==1.0.13")
    assert checkout.stale() == {".envs/client/environment.json"} | measured(POINTS)


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def test_published_values_touch_verdict_pictures_and_page_and_no_measurement(checkout: Checkout) -> None:
    name = "config/published/theirs.yaml"
    published = (checkout.folder / "config/published/inferencex-pr-2678.yaml").read_text(
        encoding="utf-8"
    )
    mine = published.replace("inferencex-pr-2678", "theirs", 1).replace(
        "recipe: kimik3-fp4-mi355x-vllm-agentic-tp8pp2", "recipe: tiny-cpu-tp1pp2"
    )
    (checkout.folder / name).write_text(mine, encoding="utf-8")
    assert checkout.stale() == SUMMARY - {"results/summary.csv"}


def test_the_written_plan_is_the_switched_one(checkout: Checkout) -> None:
    """The sweep's settings switch a patch on, which the recipe's own list does not have."""
    plan = json.loads((checkout.folder / f"{RESULTS}/conc1/plan.json").read_text(encoding="utf-8"))
    assert "of-others" in json.dumps(plan)
