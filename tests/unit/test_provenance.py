"""The record of a summary: every file with its hash, every point with its source, no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import file_sha256
from serve_repro.errors import UserError
from serve_repro.provenance.crate import NAME, Made, Measured, write_crate
from serve_repro.provenance.digest import secrets_of, sha256_without
from serve_repro.source import short, workflow_source
from serve_repro.table.rows import row

from .attempts import write_evaluation, write_point

SOURCE = {"commit": "c" * 40, "changed": ["scripts/x.py"]}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with one point, its plan and a receipt, and a lock outside of it."""
    monkeypatch.chdir(tmp_path)
    folder = Path("results/tiny/conc2")
    folder.mkdir(parents=True)
    replay, _ = write_point(folder)
    told = json.loads(replay.read_text(encoding="utf-8"))
    told |= {"recipe": "tiny", "started": "2026-01-01T00:00:00+00:00", "workflow": SOURCE}
    replay.write_text(json.dumps(told), encoding="utf-8")
    (folder / "plan.json").write_text("{}", encoding="utf-8")
    receipt = Path("results/tiny/weights/nodes/n0.json")
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}", encoding="utf-8")
    Path("results/summary.csv").write_text("recipe\ntiny\n", encoding="utf-8")
    Path("lock.txt").write_text("x==1\n", encoding="utf-8")
    return Path("results")


def record(
    results: Path, secrets: dict[str, bytes] | None = None, evals: list[Path] | None = None
) -> dict[str, dict[str, Any]]:
    """The crate's entities by id."""
    point = Measured(results / "tiny/conc2/replay.json", [Path("lock.txt")])
    evaluations = [Measured(path, [Path("lock.txt")]) for path in evals or []]
    made = Made([results / "summary.csv"], [results / "evals.csv"] if evals else [])
    write_crate(results, [point], evaluations, made, secrets or {}, "https://example.org/l")
    graph = json.loads((results / NAME).read_text(encoding="utf-8"))["@graph"]
    return {entity["@id"]: entity for entity in graph}


def test_a_row_leads_to_every_file_that_made_it(results: Path) -> None:
    found = record(results)
    summarised = found["#summarise"]
    replay = "tiny/conc2/replay.json"
    assert summarised["object"] in ({"@id": replay}, [{"@id": replay}])
    (measured,) = [entity for entity in found.values() if {"@id": replay} in _list(entity, "result")]
    stood_on = {entry["@id"] for entry in _list(measured, "object")}
    assert {"tiny/conc2/plan.json", "tiny/weights/nodes/n0.json"} < stood_on
    assert "provenance/inputs/lock.txt" in stood_on
    made = {entry["@id"] for entry in _list(measured, "result")}
    assert "tiny/conc2/attempts/20260101T000000Z/client/artifacts/profile_export.jsonl" in made
    workflow = found[measured["instrument"]["@id"]]
    assert workflow["softwareVersion"] == SOURCE["commit"]
    assert "scripts/x.py" in workflow["description"]


def test_an_evaluation_leads_to_every_file_that_made_it(results: Path) -> None:
    done = write_evaluation(results, 0.5)
    (results / "evals.csv").write_text("recipe\ntiny\n", encoding="utf-8")
    found = record(results, evals=[done])
    gathered, summarised = found["#gather-evals"], found["#summarise"]
    assert _list(gathered, "object") == [{"@id": "tiny/eval/gsm8k/eval.json"}]
    assert _list(gathered, "result") == [{"@id": "evals.csv"}]
    assert {"@id": "evals.csv"} in _list(summarised, "object")
    evaluated = found["#tiny-eval-gsm8k-20260101T000001Z"]
    stood_on = {entry["@id"] for entry in _list(evaluated, "object")}
    assert {"tiny/eval/gsm8k/plan.json", "tiny/weights/nodes/n0.json"} < stood_on
    made = {entry["@id"] for entry in _list(evaluated, "result")}
    evidence = "tiny/eval/gsm8k/attempts/20260101T000001Z/client/artifacts/served"
    assert {f"{evidence}/results_1.json", f"{evidence}/samples_served_gsm8k_1.jsonl"} < made
    assert len(_list(found["./"], "mentions")) == 4
    assert "#gather-evals" not in record(results)


def test_every_file_is_there_with_its_hash(results: Path) -> None:
    files = [entity for entity in record(results).values() if entity.get("sha256")]
    assert len(files) > 8
    for entity in files:
        path = results / entity["@id"]
        assert entity["sha256"] == file_sha256(path)
        assert entity["contentSize"] == str(path.stat().st_size)


def test_the_same_results_give_the_same_record(results: Path) -> None:
    assert record(results) == record(results)


def test_a_secret_in_any_file_is_refused_and_not_told(results: Path) -> None:
    log = results / "tiny/conc2/attempts/20260101T000000Z/rank0/server.log"
    log.write_text("token hf_abcdefgh1234 used\n", encoding="utf-8")
    secrets = secrets_of({"HF_TOKEN": "hf_abcdefgh1234", "PATH": "/usr/bin", "A_TOKEN": "short"})
    assert set(secrets) == {"HF_TOKEN"}
    with pytest.raises(UserError, match="HF_TOKEN") as raised:
        record(results, secrets)
    assert "hf_abcdefgh1234" not in str(raised.value)
    assert "server.log" in str(raised.value)


def test_a_secret_across_two_reads_is_found(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * ((1 << 20) - 5) + b"SECRETVALUE" + b"y" * 100)
    with pytest.raises(UserError):
        sha256_without(path, {"A_SECRET": b"SECRETVALUE"})
    assert sha256_without(path, {"A_SECRET": b"OTHERVALUE"}) == file_sha256(path)


def test_a_folder_that_is_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert workflow_source(tmp_path) == {"commit": None, "changed": None}
    assert short(workflow_source(tmp_path)) is None
    assert short(None) is None
    assert short({"commit": "a" * 40, "changed": []}) == "a" * 12
    assert short(SOURCE) == "c" * 12 + "+changes"


def _list(entity: dict[str, Any], name: str) -> list[dict[str, str]]:
    value = entity.get(name, [])
    return value if isinstance(value, list) else [value]


def test_a_reused_point_says_where_it_was_measured(results: Path) -> None:
    replay = results / "tiny/conc2/replay.json"
    told = json.loads(replay.read_text(encoding="utf-8"))
    told["reused"] = {"from": "theirs", "replay": "sha256:" + "12" * 32}
    replay.write_text(json.dumps(told), encoding="utf-8")
    (description,) = [
        entity["description"]
        for name, entity in record(results).items()
        if name.startswith("#tiny-conc2")
    ]
    assert "theirs" in description
    assert "sha256:" + "12" * 32 in description
    found = row(replay)
    assert found["reused_from"] == "theirs:121212121212"
