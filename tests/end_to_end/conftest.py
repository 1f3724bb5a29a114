"""A checkout in which the demonstration has really run, for tests to look at and to break."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from serve_repro.launch.leftovers import processes_of
from serve_repro.launch.network import listeners

BASE = Path(__file__).parents[2]
RECIPE = "tiny-cpu-tp1pp2"
ENVIRONMENTS = ("client", "serve-cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is end to end."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.end_to_end)


class Checkout:
    """A checkout of its own, with the environments of this repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start Snakemake as a shell would: in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *words],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, limit_s: float = 500) -> tuple[int, str]:
        """(exit code, everything it said) of a whole Snakemake run."""
        return finish(self.start(*words), limit_s)

    def point(self, concurrency: int, recipe: str = RECIPE) -> Path:
        """Folder of a point."""
        return self.folder / "results" / recipe / f"conc{concurrency}"

    def attempts(self, concurrency: int) -> list[Path]:
        """Attempts at a point, oldest first."""
        return sorted((self.point(concurrency) / "attempts").glob("*"))


def finish(process: subprocess.Popen[str], limit_s: float) -> tuple[int, str]:
    """Wait for a process; on a time-out end its group, and fail with what it said."""
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"still running after {limit_s} s:\n{output[-3000:]}")
    return process.returncode, output


def wait_for(what: str, found: Callable[[], Any], limit_s: float) -> Any:
    """The first true value of `found`."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    pytest.fail(f"not seen within {limit_s} s: {what}")


def read(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def run_id_of(attempt: Path) -> str:
    """The mark of an attempt's processes."""
    return str(read(attempt / "launch.json")["values"][0]["RUN_ID"])


def main_of_rank(attempt: Path, rank: int) -> psutil.Process | None:
    """The first process of a rank, once it has started."""
    started = attempt / f"rank{rank}/started.json"
    return psutil.Process(read(started)["pid"]) if started.is_file() else None


def assert_nothing_left(attempt: Path) -> None:
    """No process, port, scratch folder or shared memory of an attempt is left."""
    values = read(attempt / "launch.json")["values"][0]
    started = [read(path) for path in attempt.glob("rank*/started.json")]
    sessions = {entry["pid"] for entry in started}
    assert processes_of(values["RUN_ID"], sessions=sessions) == []
    for scratch in [values["SCRATCH"], *(entry["scratch"] for entry in started)]:
        assert not Path(scratch).exists()
    ports = {int(values["API_PORT"]), int(values["MASTER_PORT"])}
    assert [port for port in ports if listeners(port)] == []


@pytest.fixture
def shared_memory_unchanged() -> Iterator[None]:
    """/dev/shm holds after a test what it held before."""
    before = set(Path("/dev/shm").iterdir())
    yield
    assert set(Path("/dev/shm").iterdir()) <= before


@pytest.fixture(scope="session")
def environments() -> Path:
    """The serving and client environments of this repository, built if they are not there."""
    files = [f".envs/{name}/environment.json" for name in ENVIRONMENTS]
    guard = BASE / ".envs/tests.lock"
    guard.parent.mkdir(exist_ok=True)
    with guard.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # other tests, run side by side, ask for them too
        code, output = Checkout(BASE).run("--profile", "local", *files, limit_s=900)
    assert code == 0, output[-3000:]
    return BASE / ".envs"


def checkout_into(folder: Path, environments: Path) -> Checkout:
    """This repository's files as they stand, in another folder."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=BASE,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        source, target = BASE / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    (folder / ".envs").symlink_to(environments)
    return Checkout(folder)


@pytest.fixture(scope="session")
def demo(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The demonstration, run once from nothing but the environments."""
    made = checkout_into(tmp_path_factory.mktemp("demo") / "checkout", environments)
    code, output = made.run("--profile", "local")
    assert code == 0, output[-5000:]
    (made.folder / "output.txt").write_text(output, encoding="utf-8")
    return made


@pytest.fixture
def copy(demo: Checkout, tmp_path: Path) -> Checkout:
    """The finished demonstration, times kept, for one test to break."""
    folder = tmp_path / "copy"
    shutil.copytree(demo.folder, folder, symlinks=True)
    return Checkout(folder)
