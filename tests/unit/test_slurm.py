"""What the launcher asks Slurm, against a stand-in for its commands."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.launch import slurm
from serve_repro.plan.build import make_plan
from serve_repro.point.place import find_place, needed_s
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

BASE = Path(__file__).parents[2]
PLAN = make_plan(
    load(BASE / "config/recipes/tiny-cpu-tp1pp2.yaml", Recipe),
    load(BASE / "config/sites/dev-slurm.yaml", Site),
    1,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_PAUSE_S", 0.01)
    monkeypatch.setenv("SLURM_JOB_ID", "7")


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, squeue: str, nodes: str) -> None:
    """squeue and scontrol as shell scripts, first on the PATH."""
    for name, body in (("squeue", squeue), ("scontrol", f"printf '%s\\n' {nodes}")):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def job(minutes: float) -> str:
    """squeue's answer for a job that ends in so many minutes."""
    now = datetime.now().replace(microsecond=0)
    return f"echo 'node[1-2]|{now.isoformat()}|{(now + timedelta(minutes=minutes)).isoformat()}'"


def test_the_jobs_nodes_are_the_ranks_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands(tmp_path, monkeypatch, job(30), "node1 node2")
    assert find_place(PLAN).nodes == ["node1", "node2"]


def test_outside_of_a_job_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(UserError, match="snakemake --profile slurm"):
        find_place(PLAN)


def test_wrong_answers_are_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First a failure, then nothing with exit code 0, then the answer."""
    count = tmp_path / "count"
    wrong = f"echo x >>{count}\ncase $(wc -l <{count}) in 1) echo busy >&2; exit 1;; 2) exit 0;; esac\n"
    commands(tmp_path, monkeypatch, wrong + job(30), "node1 node2")
    assert find_place(PLAN).nodes == ["node1", "node2"]


def test_a_slurm_that_never_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands(tmp_path, monkeypatch, "echo 'no controller' >&2; exit 1", "node1")
    with pytest.raises(UserError, match=r"squeue .*: Slurm does not answer: no controller"):
        find_place(PLAN)


def test_a_node_that_the_site_does_not_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path, monkeypatch, job(30), "node1 node9")
    with pytest.raises(UserError, match=r"nothing is proven on them") as error:
        find_place(PLAN)
    assert "node9" in str(error.value)


def test_too_few_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that got one node of two must not serve on one."""
    commands(tmp_path, monkeypatch, job(30), "node1")
    with pytest.raises(UserError, match="not as many as the ranks"):
        find_place(PLAN)


def test_a_point_that_cannot_finish_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path, monkeypatch, job(0.5), "node1 node2")
    assert needed_s(PLAN) > 30
    with pytest.raises(UserError, match="so it is not begun"):
        find_place(PLAN)


def test_a_job_without_a_limit_has_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now().isoformat(timespec="seconds")
    commands(tmp_path, monkeypatch, f"echo 'node[1-2]|{now}|N/A'", "node1 node2")
    place = find_place(PLAN)
    place.check_time(PLAN, "replay")
    assert place.job is not None
    assert place.job.end is None
