"""What each runtime is told: shared folders and environment, and where it differs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serve_repro.launch.exits import describe_exit
from serve_repro.plan.bindings import MEANINGS, fill_all
from serve_repro.plan.build import make_plan
from serve_repro.plan.model import RankPlan
from serve_repro.recipe.load import load
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

BASE = Path(__file__).parents[2]
K3 = "kimik3-fp4-mi355x-vllm-agentic-tp8pp2"
CONTAINERS = ("docker", "podman", "apptainer", "enroot")


def site(runtime: str, **container: Any) -> Site:
    """The K3 site with another runtime, and only these words about containers."""
    document = load(BASE / "config/sites/mi355x-amds.yaml", Site).model_dump(exclude_unset=True)
    told = {"command": [runtime], "images": "/images", **container}
    return Site.model_validate(document | {"runtime": runtime, "container": told})


def rank(runtime: str, **container: Any) -> RankPlan:
    """Rank 0 of the K3 recipe there."""
    plan = make_plan(load(BASE / f"config/recipes/{K3}.yaml", Recipe), site(runtime, **container), 4)
    return plan.ranks[0]


@pytest.mark.parametrize("runtime", CONTAINERS)
def test_every_runtime_serves_the_same_command_past_the_images_entrypoint(runtime: str) -> None:
    words = rank(runtime).start.argv
    end = words[words.index("serve") :]
    assert end == rank("docker").start.argv[-len(end) :]
    assert end[1] == "/model${WEIGHTS_PATH}"
    assert "bash" in words
    assert 'exec "$$@"' in words


@pytest.mark.parametrize("runtime", CONTAINERS)
def test_every_runtime_mounts_what_is_proven_read_only(runtime: str) -> None:
    words = " ".join(rank(runtime).start.argv)
    ends = {"docker": ",readonly", "podman": ",readonly", "apptainer": ":ro"}
    end = ends.get(runtime, ":x-create=auto,rbind,ro")
    middle = ",target=" if runtime in ("docker", "podman") else ":"
    for name, place in (
        ("WEIGHTS_MOUNT", "/model"),
        ("DRAFT_MOUNT", "/draft"),
        ("PATCH_DIR", "/patches"),
    ):
        assert f"${{{name}}}{middle}{place}{end} " in words
    assert f"${{RANK_DIR}}{middle}/results" in words
    assert f"${{RANK_DIR}}{middle}/results{end} " not in words
    assert "--privileged" not in words


def test_the_calling_user_is_told_where_the_runtime_does_not_know() -> None:
    docker, podman = rank("docker").start.argv, rank("podman").start.argv
    assert docker[docker.index("--user") + 1] == "${USER_IDS}"
    assert podman[podman.index("--user") + 1] == "0:0", "its root is who calls it"
    assert "--user" not in rank("docker", user="image").start.argv


@pytest.mark.parametrize("runtime", ["apptainer", "enroot"])
def test_limits_come_from_prlimit_where_the_runtime_has_none(runtime: str) -> None:
    words = rank(runtime, ulimits={"memlock": "-1", "stack": "67108864"}).start.argv
    at = words.index("prlimit")
    assert words[at : at + 4] == ["prlimit", "--memlock=unlimited", "--stack=67108864", runtime]


def test_apptainer_gets_values_with_commas_whole() -> None:
    start = rank("apptainer").start
    assert start.env["APPTAINERENV_NCCL_IB_HCA"].count(",") == 7
    assert start.argv[start.argv.index("serve") - 2 :][0] == "HOME=/tmp"


def test_enroot_is_started_with_a_start_up_file_of_its_own(tmp_path: Path) -> None:
    """Run with a program that shows its words and that file in place of enroot."""
    fake = tmp_path / "enroot"
    fake.write_text('#!/bin/sh\ncat "$3"; printf "%s\\n" "$@"\n', encoding="utf-8")
    fake.chmod(0o755)
    words = rank("enroot", command=[str(fake)]).start.argv
    filled = fill_all(words, dict.fromkeys(MEANINGS, "/x") | {"SCRATCH": str(tmp_path)})
    shown = subprocess.run(filled, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown[:4] == ['exec "$@"', "start", "--rc", str(tmp_path / "enroot.rc")]
    assert shown[shown.index("serve") - 1] == "vllm"


@pytest.mark.parametrize(
    ("runtime", "key", "value"),
    [
        ("podman", "shm_size", "1G"),
        ("apptainer", "privileged", True),
        ("enroot", "devices", ["/dev/kfd"]),
    ],
)
def test_a_key_that_a_runtime_has_no_words_for_is_refused(runtime: str, key: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=f"runtime {runtime} has no container.{key}"):
        site(runtime, **{key: value})


@pytest.mark.parametrize("runtime", CONTAINERS)
def test_containers_that_outlive_their_client_have_a_name_to_be_found_by(runtime: str) -> None:
    plan = rank(runtime)
    engine = runtime in ("docker", "podman")
    assert bool(plan.cleanup) is (plan.left is not None) is (plan.first_process is not None) is engine
    if engine:
        name = plan.start.argv[plan.start.argv.index("--name") + 1]
        assert name == f"serve-repro-{K3}-conc4-${{RUN_ID}}-r0"
        assert plan.cleanup[0].argv == [runtime, "rm", "--force", name]


def test_a_signal_inside_a_container_is_named() -> None:
    assert describe_exit(137) == "exit code 137 (SIGKILL)"
    assert describe_exit(200) == "exit code 200"
