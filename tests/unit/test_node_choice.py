"""Which nodes are taken out of a partition, and what is said of the others."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_repro.batch import point_resources
from serve_repro.documents import write_json
from serve_repro.errors import UserError
from serve_repro.launch import slurm
from serve_repro.nodes import choice, partition, quarantine
from serve_repro.nodes.checks import Check
from serve_repro.nodes.partition import Listed, nodes_of, parse
from serve_repro.nodes.visit import Clock, Look, Visit, look_at_all
from serve_repro.plan.build import make_plan
from serve_repro.plan.shell import render
from serve_repro.recipe.load import load
from serve_repro.recipe.load import parse as parsed
from serve_repro.recipe.recipe import Recipe
from serve_repro.recipe.site import Site

from .plans import BASE, plan_of

SINFO = """\
n1|compute|idle|none
n2|compute|mixed|none
n2|long|mixed|none
n10|compute|drained*|power | fan
n3|compute|idle|none
n4|compute|idle*|Not responding
n5|compute|idle|none
x1|long|idle|none
"""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def visits(
    bad: Mapping[str, str] = {}, offsets: Mapping[str, float] = {}
) -> tuple[list[list[str]], Any]:
    """(what was asked, a look): nodes are well but for the bad ones, whose RDMA device is gone."""
    asked: list[list[str]] = []

    def look(nodes: list[str]) -> list[Visit]:
        asked.append(nodes)
        return [
            Visit(
                node,
                [
                    Check("rdma", "fail" if node in bad else "pass", bad.get(node, "all")),
                    Check("vram_free", "unknown", "no card tells"),
                ],
                Clock(offsets.get(node, 0.0), 0.01),
                {},
            )
            for node in nodes
        ]

    return asked, look


def test_sinfos_lines_are_of_the_partition_in_the_order_of_names() -> None:
    found = parse(SINFO, "compute")
    assert [entry.node for entry in found] == ["n1", "n10", "n2", "n3", "n4", "n5"]
    assert found[1] == Listed("n10", "drained*", "power | fan")


def test_an_unknown_partition_is_told_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"slurm.partition: comput: .*no such partition") as error:
        parse(SINFO, "comput")
    assert "one of ['compute', 'long']" in str(error.value)


def test_a_machine_without_slurm_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="there is no sinfo on the PATH"):
        nodes_of("compute")


def test_a_slurm_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_PAUSE_S", 0.01)
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'no controller' >&2; exit 1\n", encoding="utf-8")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UserError, match="Slurm does not answer: no controller"):
        nodes_of("compute")


def test_the_first_free_and_fit_ones_are_taken_and_each_other_has_its_reason() -> None:
    asked, look = visits({"n3": "missing rdma1"})
    chosen = choice.choose(parse(SINFO, "compute"), 2, {}, look)
    assert chosen.nodes == ["n1", "n5"]
    assert asked == [["n1", "n3"], ["n5"]]
    assert {entry["node"]: (entry["outcome"], entry["why"]) for entry in chosen.candidates} == {
        "n1": ("taken", "the first that were free and fit"),
        "n10": ("not taken", "Slurm says drained*: power | fan"),
        "n2": ("not taken", "Slurm says mixed"),
        "n3": ("not taken", "rdma: missing rdma1"),
        "n4": ("not taken", "Slurm says idle*: Not responding"),
        "n5": ("taken", "the first that were free and fit"),
    }
    assert [visit.node for visit in chosen.visits] == ["n1", "n3", "n5"]


def test_no_more_nodes_are_looked_at_than_are_needed() -> None:
    asked, look = visits()
    chosen = choice.choose(parse(SINFO, "compute"), 1, {"n1": "excluded"}, look)
    assert (chosen.nodes, asked) == (["n3"], [["n3"]])
    assert chosen.candidates[0]["why"] == "excluded"
    assert chosen.candidates[-1]["why"] == "not needed, so not looked at"


def test_a_node_whose_clock_is_another_is_not_put_beside_the_first() -> None:
    _, look = visits(offsets={"n1": 100.0, "n3": 102.0, "n5": 100.2})
    chosen = choice.choose(parse(SINFO, "compute"), 2, {}, look)
    assert chosen.nodes == ["n1", "n5"]
    assert chosen.candidates[3]["why"] == "its clock differs from that of n1 by 2.0 s"


def test_too_few_are_an_error_that_names_every_node() -> None:
    _, look = visits({"n3": "missing rdma1"})
    with pytest.raises(UserError) as error:
        choice.choose(parse(SINFO, "compute"), 2, {"n1": "in quarantine until x: y"}, look)
    told = str(error.value)
    assert "expected: 2 that are idle" in told
    for line in (
        "n5: fit",
        "n1: in quarantine until x: y",
        "n10: Slurm says drained*: power | fan",
        "n2: Slurm says mixed",
        "n3: rdma: missing rdma1",
        "n4: Slurm says idle*: Not responding",
    ):
        assert line in told


def site_that_chooses(**changes: Any) -> Site:
    """The shipped cluster, with a partition instead of nodes."""
    text = (BASE / "config/sites/mi355x-amds.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    del document["nodes"]
    return parsed(document | changes, Site, "site")


RECIPE = load(BASE / "config/recipes/kimik3-fp4-mi355x-vllm-agentic-tp8pp2.yaml", Recipe)


def test_a_site_without_nodes_must_have_a_partition() -> None:
    assert site_that_chooses().nodes is None
    slurm_section = {"cpus_per_node": 1, "memory_mb_per_node": 1}
    with pytest.raises(UserError, match=r"chosen from slurm\.partition: name it"):
        site_that_chooses(slurm=slurm_section)
    many = [{"node": "n[1-3]", "reason": "x", "until": date(2030, 1, 1)}]
    assert site_that_chooses(excludes=many).excludes[0].node == "n[1-3]"
    with pytest.raises(UserError, match="where nodes are named, one by one"):
        site_that_chooses(excludes=many, nodes=["n1"])


def test_the_plan_does_not_depend_on_the_choice_and_says_so() -> None:
    plan = make_plan(RECIPE, site_that_chooses(), 4)
    assert plan.nodes == []
    assert "# nodes: select_nodes chooses them first\n" in render(plan)


def test_a_points_job_asks_for_the_chosen_nodes() -> None:
    site = site_that_chooses()
    plan = make_plan(RECIPE, site, 4)
    asked = point_resources(plan, site, ["a", "b"])["slurm_extra"]
    assert asked == "--ntasks-per-node=1 --exclusive --nodelist=a,b"


@pytest.fixture
def request_() -> dict[str, Any]:
    site = site_that_chooses()
    return choice.request(make_plan(RECIPE, site, 4), site)


def recorded(asked: dict[str, Any], instead_of: list[str]) -> dict[str, Any]:
    _, look = visits()
    chosen = choice.choose(parse(SINFO, "compute"), 2, {}, look)
    return choice.document(chosen, asked, instead_of)


def test_a_choice_stands_until_one_of_its_nodes_is_kept_out(
    request_: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "nodes.json"
    assert choice.instead_of(choice.read_record(path), request_, {}) == []
    write_json(path, recorded(request_, []))
    record = choice.read_record(path)
    assert record is not None
    assert record["nodes"] == ["n1", "n3"]
    list_path = quarantine.path_of(tmp_path, "site")
    quarantine.add(list_path, {"n5": "lost"}, NOW)
    assert choice.instead_of(record, request_, quarantine.entries(list_path, NOW)) == []
    quarantine.add(list_path, {"n3": "lost"}, NOW)
    gone = choice.instead_of(record, request_, quarantine.entries(list_path, NOW))
    assert gone == ["n3 until 2026-01-02T00:00:00+00:00"]
    over = quarantine.entries(list_path, NOW + timedelta(hours=25))
    assert choice.instead_of(record, request_, over) == []


def test_a_choice_that_was_made_anew_says_the_same_and_stands(request_: dict[str, Any]) -> None:
    """Snakemake compares what it ran the choice with to what is said now."""
    gone = ["n0 until 2026-01-02T00:00:00+00:00"]
    assert choice.instead_of(recorded(request_, gone), request_, {}) == gone
    assert choice.instead_of(recorded(request_, gone), request_ | {"partition": "long"}, {}) == []


@pytest.mark.parametrize("text", ["{}", "[]", '{"nodes": [], "instead_of": [], "request": {}}'])
def test_a_damaged_record_is_told_with_its_remedy(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"choose again: rm .*nodes.json"):
        choice.read_record(path)


def test_the_look_is_a_short_job_of_its_own_on_the_whole_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """srun as a shell script: it notes its words and runs the probe here."""
    script = f'#!/bin/sh\necho "$SLURM_JOB_ID $*" > {tmp_path}/words\n'
    script += 'while [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'
    (tmp_path / "srun").write_text(script, encoding="utf-8")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    look = Look(
        plan_of("tiny-cpu-tp1pp2", "dev-slurm", 1).needs,
        None,
        partition.look_prefix("compute", "lab", "gpu:8"),
        partition.client_environment(),
    )
    (found,) = look_at_all(look, ["n1"], {})
    assert {check.outcome for check in found.checks} == {"pass"}
    words = (tmp_path / "words").read_text(encoding="utf-8")
    assert words.startswith(" --exclusive"), "not as a step of the job it may run in"
    for word in ("--nodelist=n1", "--partition=compute", "--account=lab", "--gres=gpu:8", "--time=5"):
        assert word in words.split()


def test_a_real_clusters_needs_leave_no_name_open() -> None:
    """Containers are listed by words without names that only a launch has."""
    needs = make_plan(RECIPE, site_that_chooses(), 4).needs
    look = Look(needs, None, ["sh", "-c", "echo unreachable >&2; exit 1", "${NODE}"], {})
    (found,) = look_at_all(look, ["n1"], {})
    assert found.checks[0].check == "reachable"
