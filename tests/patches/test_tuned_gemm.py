"""The tuned GEMM table through its rules: merged, proven by hash, and named in the plan."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

from serve_repro.documents import file_sha256

from .conftest import BASE, PATCHES, RECIPE, Place

TABLES = BASE / "tests/unit/gemm_tables"


def test_a_recipes_rows_become_a_table_that_every_rank_must_have(place: Place) -> None:
    recipe = place.folder / f"config/recipes/{RECIPE}.yaml"
    with recipe.open("a", encoding="utf-8") as stream:
        stream.write("tuned_gemm: {gfx: gfx950, cu_num: 256}\n")
    rows = (TABLES / "recipe.csv").read_text(encoding="utf-8")
    place.add(rows, kind="data", table="bf16_gemm")
    run = place.run(f"{PATCHES}/set.json", f"results/{RECIPE}/conc1/plan.json")
    assert run.returncode == 0, run.stderr[-3000:]
    # The CPU environment has no aiter: what would be taken from an image is put here.
    folder = place.folder / PATCHES
    configs = folder / "originals/aiter/configs"
    (configs / "model_configs").mkdir(parents=True)
    shutil.copyfile(TABLES / "image.csv", configs / "bf16_tuned_gemm.csv")
    shutil.copyfile(TABLES / "image_model.csv", configs / "model_configs/k3_bf16_tuned_gemm.csv")
    originals = {"image": "sha256:0", "roots": {"aiter": "/site"}, "files": {}}
    (folder / "originals.json").write_text(json.dumps(originals), encoding="utf-8")
    run = place.run(f"{PATCHES}/overlay.json", "--allowed-rules", "merge_gemm_configs", "build_overlay")
    assert run.returncode == 0, run.stderr[-3000:]

    table = folder / "gemm/bf16_tuned_gemm.csv"
    with table.open(encoding="utf-8") as stream:
        assert {row["gfx"] for row in csv.DictReader(stream)} == {"gfx950"}
    report = read(folder / "gemm/report.json")
    assert (report["rows"], len(report["replaced"])) == (11, 2)
    assert report["replaced"][0] == {"place": "of-others:2", "over": "bf16_tuned_gemm.csv:4"}
    (claim,) = read(folder / "overlay.json")["patches"]
    assert claim["table"] == {"variable": "AITER_CONFIG_GEMM_BF16", "sha256": file_sha256(table)}
    for rank in read(place.folder / f"results/{RECIPE}/conc1/plan.json")["ranks"]:
        assert rank["start"]["env"]["AITER_CONFIG_GEMM_BF16"] == (
            "${PATCH_DIR}/gemm/bf16_tuned_gemm.csv"
        )


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
