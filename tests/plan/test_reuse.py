"""Points of another checkout: taken where all identities are equal, and told why where not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from serve_repro.driver import VERSION

from .conftest import BASE, PARTS, SNAKEMAKE, Checkout

RECIPE = "config/recipes/tiny-cpu-tp1pp2.yaml"
RESULTS = Path("results/tiny-cpu-tp1pp2")
LEVELS = (1, 2, 4)
POINTS = {str(RESULTS / f"conc{level}/replay.json") for level in LEVELS}
RECEIPT = str(RESULTS / "weights/nodes/localhost.json")
ON_NODES = {"verify_weights", "pull_image", "check_patches"}
RECORDS = "attempts/20260101T000000Z/client/artifacts/profile_export.jsonl"

_SHIM = """#!{python}
# Stands for `python` in the rules' commands: quick programs run, the others only leave documents.
import hashlib, json, os, pathlib, sys

def proven(path):
    # Of an environment its lock; of weights and image one digest, the same in every node's receipt.
    if path.parts[0] == ".envs":
        return b"".join(lock.read_bytes() for lock in pathlib.Path("envs", path.parts[1]).glob("*.txt"))
    return str(path.parts[:3]).encode()

words = sys.argv[1:]
if words and words[0] in {real}:
    os.execv({python!r}, [{python!r}, *words])
if words and words[0] == "scripts/replay.py":
    os.environ["PYTHONPATH"] = "scripts"
    os.execv({python!r}, [{python!r}, {replay!r}, *words[1:]])
wanted = False
for word in words:
    if word.startswith("--"):
        wanted = word in ("--output", "--outputs")
    elif wanted:
        path = pathlib.Path(word)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = {{"digest": "sha256:" + hashlib.sha256(proven(path)).hexdigest(), "node": path.stem}}
        path.write_text(json.dumps(made) if path.suffix == ".json" else "made by " + words[0])
"""
_REAL = {f"scripts/{name}.py" for name in ("plan", "build_patches", "make_traces", "reuse_point")}


class Ran(NamedTuple):
    """One call of Snakemake."""

    code: int
    told: str


class Copy:
    """A checkout whose slow programs leave documents at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if folder.exists():
            return
        folder.mkdir()
        for part in PARTS:
            source = BASE / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.is_file():
                shutil.copy2(source, folder / part)
        shim = folder / ".envs/serve-cpu/bin/python"
        shim.parent.mkdir(parents=True)
        replay = str(Path(__file__).with_name("leave_point.py"))
        shim.write_text(_SHIM.format(python=sys.executable, real=_REAL, replay=replay), encoding="utf-8")
        shim.chmod(0o755)

    def run(self, *words: str) -> Ran:
        """Call Snakemake on the tiny recipe."""
        shim = str(self.folder / ".envs/serve-cpu/bin/python")
        ran = subprocess.run(
            [sys.executable, "-c", SNAKEMAKE, shim, "--profile", "local", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Ran(ran.returncode, ran.stdout + ran.stderr)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be there."""
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name} does not hold {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def point(self, level: int) -> dict[str, Any]:
        """The replay.json of one point."""
        path = self.folder / RESULTS / f"conc{level}/replay.json"
        point: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return point

    def has(self, level: int) -> bool:
        """Whether a point has a result."""
        return (self.folder / RESULTS / f"conc{level}/replay.json").is_file()

    def taken(self) -> set[int]:
        """The concurrencies whose points were taken from elsewhere."""
        return {level for level in LEVELS if self.has(level) and "reused" in self.point(level)}


def jobs(ran: Ran) -> set[str]:
    """The rules of Snakemake's own table of jobs."""
    table = ran.told.partition("Job stats:")[2].partition("total")[0]
    return {line.split()[0] for line in table.splitlines() if line.split()}


@pytest.fixture(scope="module")
def finished_there(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A checkout in which the tiny sweep has run."""
    there = Copy(tmp_path_factory.mktemp("there") / "theirs")
    ran = there.run("--quiet", "all")
    assert ran.code == 0, ran.told[-3000:]
    assert there.taken() == set()
    return there


@pytest.fixture(scope="module")
def shown_and_taken(
    finished_there: Copy, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ran, Ran, Copy]:
    """What a new checkout shows with -n, what it tells as it runs, and the checkout that has run."""
    here = Copy(tmp_path_factory.mktemp("here") / "ours")
    reuse = f"reuse={finished_there.folder}"
    shown, ran = here.run("-n", "--config", reuse), here.run("--config", reuse)
    assert ran.code == 0, ran.told[-3000:]
    return shown, ran, here


@pytest.fixture
def taken(shown_and_taken: tuple[Ran, Ran, Copy], tmp_path: Path) -> Copy:
    """A copy of the checkout that has taken its points, for one test to edit."""
    shutil.copytree(shown_and_taken[2].folder, tmp_path / "ours", symlinks=True)
    return Copy(tmp_path / "ours")


@pytest.fixture
def there(finished_there: Copy, tmp_path: Path) -> Path:
    """A copy of the finished checkout, for one test to spoil."""
    target = tmp_path / "theirs"
    shutil.copytree(finished_there.folder, target, ignore=shutil.ignore_patterns(".snakemake"))
    return target


@pytest.fixture
def here(tmp_path: Path) -> Copy:
    """A new checkout."""
    return Copy(tmp_path / "ours")


def stale(copy: Copy) -> set[str]:
    """Files that a run without the setting would make now."""
    return Checkout(copy.folder).stale()


def test_a_preview_shows_the_points_that_are_reused_and_asks_no_node(
    shown_and_taken: tuple[Ran, Ran, Copy],
) -> None:
    shown, _, _ = shown_and_taken
    assert shown.code == 0, shown.told[-3000:]
    for level in LEVELS:
        assert f"at concurrency {level}, run 1: reused from" in shown.told
    assert "(if weights, image, dataset, client turn out equal, too)" in shown.told
    assert {"reuse_point", "resolve_weights", "resolve_image", "build_patches"} <= jobs(shown)
    assert not {"replay", *ON_NODES} & jobs(shown)


def test_evidence_is_copied_with_its_origin_and_nothing_ran_on_a_node(
    shown_and_taken: tuple[Ran, Ran, Copy], finished_there: Copy
) -> None:
    _, ran, here = shown_and_taken
    assert here.taken() == set(LEVELS)
    assert not {"replay", *ON_NODES} & jobs(ran)
    point, folder = here.point(2), here.folder / RESULTS / "conc2"
    assert point["reused"]["from"] == "theirs"
    theirs = finished_there.folder / RESULTS / "conc2"
    assert (folder / RECORDS).read_bytes() == (theirs / RECORDS).read_bytes()
    assert not (folder / point["attempt"] / "rank0/cache").exists()
    assert {key: point[key] for key in point if key != "reused"} == finished_there.point(2)


def test_afterwards_there_is_nothing_to_do_with_and_without_the_other_checkout(
    taken: Copy, there: Path
) -> None:
    shown = taken.run("-n", "--config", f"reuse={there}")
    assert "was reused before" in shown.told
    assert "Nothing to be done" in shown.told
    assert stale(taken) == set()


def test_a_forced_point_is_held_against_its_evidence_again(taken: Copy) -> None:
    before, name = taken.point(2), str(RESULTS / "conc2/replay.json")
    ran = taken.run(name, "--force")
    assert ran.code == 0, ran.told[-3000:]
    assert taken.point(2) == before
    (taken.folder / RESULTS / "conc2" / RECORDS).write_text("better numbers", encoding="utf-8")
    ran = taken.run(name, "--force")
    assert ran.code != 0
    assert "the evidence is not what the point was judged by" in ran.told


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (RECIPE, "max-num-seqs: 16", "max-num-seqs: 8"),
        (RECIPE, "      sessions: 6", "      sessions: 7"),
        (RECIPE, "    layers: 4", "    layers: 3"),
        ("envs/client/lock.txt", "agentx-harness==1.0.12", "agentx-harness==1.0.13"),
        (
            "patches/hooks/serve_repro_hooks/cpu_pipeline_eager.py",
            "def install(",
            "# a comment\n\n\ndef install(",
        ),
        ("scripts/serve_repro/driver.py", f"VERSION = {VERSION}", "VERSION = 1000"),
    ],
)
def test_a_change_here_measures_what_was_taken(taken: Copy, name: str, old: str, new: str) -> None:
    taken.edit(name, old, new)
    assert POINTS | {RECEIPT} <= stale(taken)


def test_a_comment_touches_nothing_that_was_taken(taken: Copy) -> None:
    taken.edit(RECIPE, "title: Tiny", "title: Very tiny")
    taken.edit("scripts/reuse_point.py", "from __future__", "# a comment\nfrom __future__")
    assert stale(taken) == set()


def test_a_deleted_result_is_measured_when_no_other_checkout_is_named(taken: Copy) -> None:
    point = str(RESULTS / "conc2/replay.json")
    (taken.folder / point).unlink()
    ran = taken.run("--quiet", "all")
    assert ran.code == 0, ran.told[-3000:]
    assert taken.taken() == {1, 4}
    assert stale(taken) == set()


def test_another_plan_is_told_with_both_values_and_measured(here: Copy, there: Path) -> None:
    here.edit(RECIPE, "max-num-seqs: 16", "max-num-seqs: 8")
    shown = here.run("-n", "--config", f"reuse={there}")
    theirs = json.loads((there / RESULTS / "conc1/replay.json").read_text(encoding="utf-8"))
    digest = theirs["identity"]["plan"].removeprefix("sha256:")[:12]
    assert "at concurrency 1, run 1: not reused: plan: here " in shown.told
    assert f"there {digest}" in shown.told
    assert "replay" in jobs(shown)
    assert "reuse_point" not in jobs(shown)


def test_each_point_is_taken_measured_or_refused_by_itself(here: Copy, there: Path) -> None:
    """One differs in what only a proof shows, of one the evidence was changed, one is not there."""
    path = there / RESULTS / "conc1/replay.json"
    point = json.loads(path.read_text(encoding="utf-8"))
    weights = point["identity"]["weights"].removeprefix("sha256:")[:12]
    point["identity"]["weights"] = "sha256:" + "1" * 64
    path.write_text(json.dumps(point), encoding="utf-8")
    (there / RESULTS / "conc2" / RECORDS).write_text("better numbers", encoding="utf-8")
    shutil.rmtree(there / RESULTS / "conc4")

    ran = here.run("--config", f"reuse={there}")
    assert ran.code != 0
    differs = f"weights: here {weights}, there 111111111111"
    assert f"this point cannot be reused: {differs}" in ran.told
    assert "the evidence is not what the point was judged by" in ran.told
    assert "run 1: not reused: there is no valid point (not measured)" in ran.told
    assert here.taken() == set()
    assert {level for level in LEVELS if here.has(level)} == {4}
    assert not list((here.folder / RESULTS / "conc2").glob("attempts/*"))

    again = here.run(str(RESULTS / "conc1/replay.json"), "--config", f"reuse={there}")
    assert again.code == 0, again.told[-3000:]
    assert f"at concurrency 1, run 1: not reused: {differs}" in again.told
    assert "at concurrency 4, run 1: not reused: it is measured here already" in again.told
    assert here.has(1)
    assert here.taken() == set()


def test_a_folder_that_is_not_there_is_refused(here: Copy) -> None:
    ran = here.run("-n", "--config", "reuse=nowhere")
    assert ran.code != 0
    assert "config: reuse: nowhere: no such folder" in ran.told
    assert "Traceback" not in ran.told
