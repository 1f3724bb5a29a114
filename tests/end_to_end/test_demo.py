"""The demonstration on real parts: two live ranks, three points, one table."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from .conftest import RECIPE, Checkout, assert_nothing_left, checkout_into, read


def test_three_valid_rows(demo: Checkout) -> None:
    with (demo.folder / "results/summary.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["concurrency"] for row in rows] == ["1", "2", "4"]
    for row in rows:
        assert row["status"] == "valid"
        assert row["validity"] == "smoke"
        assert row["gpus"] == "2"
        assert float(row["total_tput_tok_s"]) > 0
        half = float(row["total_tput_tok_s"]) / 2
        assert abs(float(row["total_tput_tok_s_gpu"]) - half) < 0.01
        assert float(row["ttft_p50_ms"]) > 0
        assert float(row["prefix_cache_hit_ratio"]) > 0
        assert row["gates_passed"] == row["gates_total"]


def test_every_point_was_served_by_two_ranks_with_their_patches(demo: Checkout) -> None:
    for concurrency in (1, 2, 4):
        point = read(demo.point(concurrency) / "replay.json")
        seen = {gate["gate"]: gate["seen"] for gate in point["gates"]}
        assert seen["world_size"] == "workers (rank, world size) [(0, 2), (1, 2)], planned 2"
        assert seen["patches"] == "4 attestations, all installed"
        assert seen["kv_offload"].startswith("1024 blocks of host memory; workers say 0.06 GiB")
        attempt = demo.point(concurrency) / point["attempt"]
        for rank in (0, 1):
            assert (attempt / f"rank{rank}/server.log").stat().st_size > 0
        assert_nothing_left(attempt)


def test_plot_report_and_message(demo: Checkout) -> None:
    png = demo.folder / "results/plots/throughput_against_interactivity.png"
    assert png.read_bytes().startswith(b"\x89PNG")
    report = (demo.folder / "results/report.html").read_text(encoding="utf-8")
    assert "3 valid points" in report
    assert report.count("data:image/svg+xml;base64,") == 2 + 3, "two pictures and one a point"
    assert not re.search(r"""(src|href)=["']?https?:|@import|url\(http""", report), "needs the network"
    said = (demo.folder / "output.txt").read_text(encoding="utf-8")
    for made in ("results/summary.csv", "results/report.html", f"results/{RECIPE}", str(png.name)):
        assert made in said.rpartition("TTFT p50 ms")[2]


def test_the_same_again_has_nothing_to_do(demo: Checkout) -> None:
    code, output = demo.run("--profile", "local")
    assert code == 0
    assert "Nothing to be done" in output


def test_progress_is_told_at_every_stage(demo: Checkout) -> None:
    said = (demo.folder / "output.txt").read_text(encoding="utf-8")
    for stage in (
        "rank 1: ranks have met",
        "rank 0: weights loaded",
        "API is healthy after",
        "real tokens through all stages",
        "replaying for 10 s",
        "ranks stopped after",
    ):
        assert said.count(stage) >= 3, stage


@pytest.mark.nightly
def test_speculation_at_the_acceptance_length_that_the_recipe_says(
    environments: Path, tmp_path: Path
) -> None:
    spec = checkout_into(tmp_path / "spec", environments)
    code, output = spec.run("--profile", "local", "--configfile", "config/tiny-spec.yaml")
    assert code == 0, output[-3000:]
    with (spec.folder / "results/summary.csv").open(encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream)
    assert row["status"] == "valid"
    assert row["gpus"] == "1"
    assert abs(float(row["acceptance_length_tok"]) - 2.51) < 0.05 * 2.51
