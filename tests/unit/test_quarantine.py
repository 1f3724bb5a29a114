"""A node that is kept out: why, until when, and how it comes in again."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serve_repro.batch import point_resources
from serve_repro.errors import UserError
from serve_repro.nodes import quarantine
from serve_repro.plan.build import make_plan
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROGRAM = Path(__file__).parents[2] / "scripts/quarantine.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = quarantine.path_of(tmp_path / "resources/quarantine", "here")
    quarantine.add(found, {"n1": "gpus: 7 GPUs, the site says 8"}, NOW)
    return found


def test_a_node_is_refused_with_reason_end_and_remedy(path: Path) -> None:
    with pytest.raises(UserError) as error:
        quarantine.refuse(path, ["n0", "n1", "n1"], NOW)
    told = str(error.value)
    assert told.startswith("node n1: is in quarantine")
    assert "n1: gpus: 7 GPUs, the site says 8 (until 2026-01-02T00:00:00+00:00)" in told
    assert "python scripts/quarantine.py lift here n1" in told


def test_other_nodes_and_times_are_not(path: Path, tmp_path: Path) -> None:
    quarantine.refuse(path, ["n0"], NOW)
    quarantine.refuse(path, ["n1"], NOW + timedelta(hours=24))
    quarantine.refuse(tmp_path / "none.json", ["n1"], NOW)


def test_entries_that_are_over_go_with_the_next_change(path: Path) -> None:
    quarantine.add(path, {"n2": "lost"}, NOW + timedelta(hours=25))
    assert "n1" not in path.read_text(encoding="utf-8")


def test_a_damaged_list_is_no_empty_list(path: Path) -> None:
    path.write_text('{"n1": {"reason": "x"}}', encoding="utf-8")
    with pytest.raises(UserError, match="no list of quarantined nodes"):
        quarantine.refuse(path, ["n0"], NOW)


def test_the_program_lists_and_lifts(tmp_path: Path) -> None:
    path = quarantine.path_of(tmp_path / quarantine.FOLDER, "here")
    quarantine.add(path, {"n1": "lost"}, datetime.now(UTC))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(PROGRAM), *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("list", "here").stdout.startswith("n1  until ")
    assert run("lift", "here", "n1").returncode == 0
    assert run("list", "here").stdout == ""
    again = run("lift", "here", "n1")
    assert (again.returncode, "is not in quarantine" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("named", "kept_out", "words"),
    [
        (["n1", "n2", "n3"], [], ""),
        (["n1", "n2", "n3"], ["n2", "elsewhere"], "--exclude=n2"),
        (["n1", "n2", "n3"], ["n2", "n3"], ""),  # the job is to start and say why
        (["n1", "n2"], ["n2"], "--nodelist=n1,n2"),
    ],
)
def test_slurm_gives_no_node_that_is_kept_out_where_others_are_enough(
    named: list[str], kept_out: list[str], words: str
) -> None:
    base = Path(__file__).parents[2]
    site = load(base / "config/sites/dev-slurm.yaml", Site).model_copy(update={"nodes": named})
    plan = make_plan(load(base / "config/recipes/tiny-cpu-tp1pp2.yaml", Recipe), site, 2)
    asked = point_resources(plan, site, named, kept_out)["slurm_extra"]
    assert asked == f"--ntasks-per-node=1 --exclusive {words}".strip()
