"""Whether a point of another checkout is the same measurement, whole and valid; and its copy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from serve_repro.documents import read_json, write_json, write_text
from serve_repro.errors import UserError
from serve_repro.nodes import quarantine
from serve_repro.point.seal import seal
from serve_repro.result_paths import Run, replay_path
from serve_repro.reuse.decide import Decision, decide
from serve_repro.reuse.identity import differences, identities_here, identities_of
from serve_repro.reuse.source import look, results_of
from serve_repro.reuse.take import Wanted, take

NOW = datetime(2026, 1, 2, tzinfo=UTC)
RUN = Run("tiny", 2, 1)
HERE: dict[str, str | int | None] = {
    "plan": "sha256:" + "a" * 64,
    "driver": 2,
    "patch_set": "b" * 64,
    "weights": "sha256:" + "c" * 64,
    "image": "sha256:" + "d" * 64,
    "dataset": "sha256:" + "e" * 64,
    "client": "sha256:" + "f" * 64,
}
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results folder of another checkout with one valid point; the test works in its own folder."""
    results = tmp_path / "theirs/results"
    put(results, RUN)
    (tmp_path / "ours").mkdir()
    monkeypatch.chdir(tmp_path / "ours")
    return results


def put(results: Path, run: Run) -> Path:
    replay = results.parent / replay_path(run)
    attempt = replay.parent / "attempts/20260101T000000Z"
    write_text(attempt / "client/artifacts/records.jsonl", "{}\n")
    write_text(attempt / "rank0/server.log", "it serves\n")
    write_text(attempt / "rank0/cache/code", "compiled")
    point = {
        "recipe": run.recipe,
        "concurrency": run.concurrency,
        "site": "laptop",
        "nodes": ["n0", "n1"],
        "attempt": "attempts/20260101T000000Z",
        "status": "valid",
        "gates": [{"gate": "completed", "outcome": "pass", "seen": "1"}],
        "identity": {**HERE, "patches": "sha256:" + "0" * 64},
        "evidence": seal(attempt),
        "patch_set": HERE["patch_set"],
    }
    write_json(replay, point)
    return replay


def spoil(results: Path, change: Change) -> None:
    path = results.parent / replay_path(RUN)
    point = read_json(path)
    change(point)
    write_json(path, point)


def decided(results: Path | None, here: dict[str, str | int | None] = HERE) -> Decision:
    return decide(RUN, here, "declared", results, NOW)


def taken(results: Path | None, declared: str = "declared", **other: str) -> dict[str, Any]:
    wanted = Wanted(RUN, HERE | other, declared)
    folder = Path(replay_path(RUN)).parent
    folder.mkdir(parents=True, exist_ok=True)
    point = take(wanted, results, folder, NOW)
    write_json(Path(replay_path(RUN)), point)
    return point


def test_the_seal_has_all_evidence_and_no_compiled_code(there: Path) -> None:
    evidence = read_json(there.parent / replay_path(RUN))["evidence"]
    assert set(evidence) == {"client/artifacts/records.jsonl", "rank0/server.log"}


def test_equal_identities_do_not_differ(there: Path) -> None:
    assert differences(HERE, identities_of(read_json(there.parent / replay_path(RUN)))) == []


@pytest.mark.parametrize("name", HERE)
def test_each_identity_counts_and_is_told_with_both_values(there: Path, name: str) -> None:
    other = HERE | {name: "sha256:" + "9" * 64}
    found = decided(there, other)
    assert not found.taken
    own = str(HERE[name]).removeprefix("sha256:")[:12]
    assert (
        found.told == f"tiny at concurrency 2, run 1: not reused: {name}: here 999999999999, there {own}"
    )


def test_what_is_not_proven_here_yet_is_left_to_the_job_and_told(there: Path) -> None:
    found = decided(there, HERE | {"weights": None, "client": None})
    assert found.taken
    assert "reused from" in found.told
    assert found.told.endswith("(if weights, client turn out equal, too)")


def test_proofs_are_read_from_their_files_and_a_mark_is_none(tmp_path: Path) -> None:
    proofs = {name: tmp_path / f"{name}.json" for name in ("weights", "image", "dataset", "client")}
    write_json(proofs["weights"], {"digest": "sha256:w"})
    write_text(proofs["image"], "cut short")
    found = identities_here("p", 2, "s", proofs)
    assert found["weights"] == "sha256:w"
    assert (found["image"], found["dataset"], found["client"]) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda point: point["gates"].append({"outcome": "unknown"}), "valid, 1 of 2 gates passed"),
        (lambda point: point.update(gates=[]), "valid, 0 of 0 gates passed"),
        (lambda point: point.update(status="invalid"), "it is not valid: invalid"),
        (lambda point: point.pop("evidence"), "an earlier version, which kept no hashes"),
        (lambda point: point.pop("patch_set"), "an earlier version, which kept no hashes"),
        (lambda point: point.update(recipe="other"), "of another point: other at concurrency 2"),
        (lambda point: point["evidence"].update(more="0"), "1 files are missing, more first"),
        (lambda point: point.clear(), "damaged or of another version"),
    ],
)
def test_what_is_not_whole_and_valid_is_refused(there: Path, change: Change, told: str) -> None:
    spoil(there, change)
    found = decided(there)
    assert not found.taken
    assert told in found.told


@pytest.mark.parametrize(
    ("status", "told"), [("invalid", "last attempt invalid"), (None, "last attempt unfinished")]
)
def test_a_point_without_a_result_is_told_with_what_became_of_it(
    there: Path, status: str | None, told: str
) -> None:
    replay = there.parent / replay_path(RUN)
    replay.unlink()
    if status:
        write_json(replay.parent / "attempts/20260102T000000Z/point.json", {"status": status})
    assert told in look(there, RUN, NOW).refusal


@pytest.mark.parametrize("ours", [True, False])
def test_nodes_in_quarantine_there_or_here_count(there: Path, ours: bool) -> None:
    folder = quarantine.FOLDER if ours else there.parent / quarantine.FOLDER
    quarantine.add(quarantine.path_of(folder, "laptop"), {"n1": "a GPU fault"}, NOW)
    assert "in quarantine now: n1 (a GPU fault)" in look(there, RUN, NOW).refusal
    assert look(there, RUN, NOW + timedelta(days=2)).refusal == ""


def test_a_repeat_is_taken_from_the_same_repeat(there: Path) -> None:
    second = Run("tiny", 2, 2)
    assert "no valid point" in look(there, second, NOW).refusal
    put(there, second)
    assert look(there, second, NOW).refusal == ""


def test_a_copy_has_the_evidence_its_origin_and_no_private_path(there: Path) -> None:
    point = taken(there)
    assert point["reused"]["from"] == "theirs"
    assert str(there.parent) not in str(point)
    assert decided(None).taken
    assert decided(there).told.endswith("was reused before")
    assert not (Path(replay_path(RUN)).parent / point["attempt"] / "rank0/cache").exists()


def test_a_copy_stays_while_what_is_declared_here_stays(there: Path) -> None:
    taken(there)
    assert not decide(RUN, HERE, "another", None, NOW).taken
    assert not decided(None, HERE | {"plan": "sha256:" + "9" * 64}).taken


def test_a_copy_is_checked_again_without_the_other_checkout(there: Path) -> None:
    first = taken(there)
    there.rename(there.with_name("gone"))
    assert taken(None) == first
    attempt = Path(replay_path(RUN)).parent / first["attempt"]
    write_text(attempt / "rank0/server.log", "other words\n")
    with pytest.raises(UserError, match="not what the point was judged by") as error:
        taken(None)
    assert f"rm -r {attempt}" in str(error.value)


def test_changed_evidence_is_refused_and_nothing_is_copied(there: Path) -> None:
    write_text(there / "tiny/conc2/attempts/20260101T000000Z/client/artifacts/records.jsonl", "better")
    with pytest.raises(UserError, match=r"theirs/.*records.jsonl: the evidence is not what") as error:
        taken(there)
    assert "without the setting reuse" in str(error.value)
    assert not Path("results/tiny/conc2/attempts").exists()


def test_a_difference_that_only_the_job_sees_is_refused_with_both_values(there: Path) -> None:
    with pytest.raises(UserError, match="weights: here 999999999999, there cccccccccccc"):
        taken(there, weights="9" * 64)


def test_nothing_taken_before_and_no_checkout_named_is_refused(there: Path) -> None:
    del there
    with pytest.raises(UserError, match="no other checkout is named"):
        taken(None)


def test_a_point_that_is_measured_here_is_not_replaced(there: Path) -> None:
    put(Path("results"), RUN)
    assert decided(there) == Decision(
        False, "tiny at concurrency 2, run 1: not reused: it is measured here already"
    )
    assert decided(None) == Decision(False, "")


def test_a_checkout_or_its_results_may_be_named(there: Path) -> None:
    assert results_of(str(there)) == results_of(str(there.parent)) == there


@pytest.mark.parametrize(
    ("named", "told"),
    [("nowhere", "no such folder"), ("empty", "holds no points"), (".", "this checkout's own results")],
)
def test_a_folder_without_results_is_refused(there: Path, named: str, told: str) -> None:
    del there
    Path("empty").mkdir()
    Path("results").mkdir()
    with pytest.raises(UserError, match=told):
        results_of(named)
