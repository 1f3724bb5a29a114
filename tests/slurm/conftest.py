"""A real Slurm of several nodes, and checkouts that run on it: with stubs (quick) or real vLLM."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import yaml

from slurm_cluster import SlurmCluster
from slurm_required import require_slurm
from tests.end_to_end.conftest import BASE, checkout_into, read, wait_for
from tests.end_to_end.conftest import finish as finish_process

STUBS = BASE / "tests/stubs"
LEVELS = [1, 2]
# For what has to start: slow on a busy machine, and no failure. What has to end has tighter limits.
WAIT_S = 240
SNAKEMAKE = Path(__file__).with_name("impatient_snakemake.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a Slurm."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


class SlurmCheckout:
    """A checkout whose Snakemake talks to a cluster."""

    def __init__(self, folder: Path, cluster: SlurmCluster, recipe: str, config: str) -> None:
        self.folder = folder
        self.cluster = cluster
        self.recipe = recipe
        self.config = config
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, path: Path | None = None) -> subprocess.Popen[str]:
        """Start Snakemake as a shell would; `path` is put before PATH."""
        env = self.cluster.client_environment()
        if path is not None:
            env["PATH"] = f"{path}:{env['PATH']}"
        process = subprocess.Popen(
            [sys.executable, str(SNAKEMAKE), *words, "--profile", "slurm", "--configfile", self.config],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def stop(self) -> None:
        """End every Snakemake that still runs, as Ctrl-C does, and show what it said."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                print(finish(process)[1])

    def point(self, concurrency: int) -> Path:
        return self.folder / "results" / self.recipe / f"conc{concurrency}"

    def attempt(self, concurrency: int) -> Path | None:
        """The newest attempt at a point."""
        found = sorted((self.point(concurrency) / "attempts").glob("*"))
        return found[-1] if found else None

    def replaying(self, concurrency: int, limit_s: float = WAIT_S) -> Path:
        """Wait until a point replays; returns its attempt."""

        def seen() -> Path | None:
            attempt = self.attempt(concurrency)
            records = attempt and attempt / "client/artifacts/profile_export.jsonl"
            return attempt if records and records.is_file() and records.stat().st_size else None

        attempt: Path = wait_for(f"conc{concurrency} replaying", seen, limit_s)
        return attempt

    def ended(self, attempt: Path, limit_s: float = 60) -> dict[str, Any]:
        """Wait for an attempt's point.json."""
        path = attempt / "point.json"
        wait_for(f"the end of {attempt}", path.is_file, limit_s)
        point: dict[str, Any] = read(path)
        return point

    def ranks(self) -> list[psutil.Process]:
        """Living processes of ranks, holders and launchers of this checkout, on all nodes."""
        marks = (str(self.folder), "hold_rank.py", "scripts/replay.py")
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join(process.cmdline())
                here = process.cwd() == str(self.folder) or str(self.folder) in words
                living = process.status() != psutil.STATUS_ZOMBIE
            except psutil.Error:
                continue
            if here and living and any(mark in words for mark in marks):
                found.append(process)
        return [process for process in found if "snakemake" not in " ".join(process.cmdline()[:3])]

    def jobs(self) -> list[str]:
        """Jobs that Slurm still knows as pending or running: 'id state'."""
        return self.cluster.run("squeue", "--noheader", "--format", "%i %T").splitlines()

    def assert_nothing_left(self) -> None:
        """No job, no process of ours on any node, no scratch folder."""
        wait_for("no job", lambda: not self.jobs(), 30)
        wait_for("no process", lambda: not self.ranks(), 15)


def finish(process: subprocess.Popen[str], limit_s: float = 180) -> tuple[int, str]:
    """Wait for Snakemake; see the end-to-end tests."""
    return finish_process(process, limit_s)


@pytest.fixture(scope="session")
def start_cluster() -> Iterator[Callable[..., SlurmCluster]]:
    """Start clusters; all are stopped at the end."""
    require_slurm()
    running: list[tuple[SlurmCluster, Path]] = []

    def start(**options: Any) -> SlurmCluster:
        # Short: Slurm's sockets have paths of at most 107 characters.
        state = Path(tempfile.mkdtemp(prefix="sr-"))
        cluster = SlurmCluster(state / "s", **options)
        cluster.up()
        running.append((cluster, state))
        return cluster

    yield start
    for cluster, state in running:
        cluster.down()
        shutil.rmtree(state)


@pytest.fixture(scope="session")
def cluster(start_cluster: Callable[..., SlurmCluster]) -> SlurmCluster:
    """Two nodes with eight made-up GPUs each."""
    return start_cluster(nodes=2, gpus=8)


def stub_python(path: Path, when: str, stub: Path) -> None:
    """An interpreter that runs a stub where the real program would be called."""
    path.parent.mkdir(parents=True)
    real, program = shlex.quote(sys.executable), shlex.quote(str(stub))
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *{when}*) exec {real} {program} "$@";; *) exec {real} "$@";; esac\n',
        encoding="utf-8",
    )
    path.chmod(0o755)


def make_stub_checkout(folder: Path, cluster: SlurmCluster, nodes: list[str]) -> SlurmCheckout:
    """This repository with a recipe that serves by stubs: the launcher and Slurm are real."""
    checkout_into(folder, folder / "none")
    (folder / ".envs").unlink()
    stub_python(folder / ".envs/serve-stub/bin/python", "vllm.entrypoints", STUBS / "serve_stub.py")
    stub_python(folder / ".envs/client/bin/python", "aiperf", STUBS / "client_stub.py")
    (folder / "envs/serve-stub").mkdir()
    for name in ("serve-stub", "client"):
        (folder / f"envs/{name}/lock.txt").write_text("# nothing is pinned\n", encoding="utf-8")
    weights = folder / "weights/tiny-llama"
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}", encoding="utf-8")
    (weights / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")  # a header of no tensor
    recipe = yaml.safe_load((BASE / "config/recipes/tiny-cpu-tp1pp2.yaml").read_text(encoding="utf-8"))
    recipe |= {"name": "stub", "patches": [], "kv_offload": None, "concurrencies": LEVELS}
    recipe["image"] = {"environment": "serve-stub"}
    del recipe["model"]["made"]
    recipe["replay"]["duration_s"] = 6
    site = yaml.safe_load((BASE / "config/sites/dev-slurm.yaml").read_text(encoding="utf-8"))
    site |= {"name": "test-slurm", "nodes": nodes, "weight_roots": ["weights"]}
    site["slurm"]["memory_mb_per_node"] = 1500
    settings = {"recipes": ["stub"], "site": "test-slurm"}
    for path, document in (
        ("config/recipes/stub.yaml", recipe),
        ("config/sites/test-slurm.yaml", site),
        ("config/stub.yaml", settings),
    ):
        (folder / path).write_text(yaml.safe_dump(document), encoding="utf-8")
    return SlurmCheckout(folder, cluster, "stub", "config/stub.yaml")


def edit_yaml(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change one document of a checkout."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


class Watched(NamedTuple):
    """A whole sweep on two nodes, and what was seen while its first point replayed."""

    checkout: SlurmCheckout
    output: str
    job: str
    """The point's job, as Slurm showed it."""
    launchers: int
    hosts: set[str]
    """Where its ranks were held."""


@pytest.fixture(scope="session")
def watched(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """The sweep that the other tests start from."""
    folder = tmp_path_factory.mktemp("finished") / "checkout"
    checkout = make_stub_checkout(folder, cluster, ["node1", "node2"])
    process = checkout.start("results/summary.csv")
    attempt = checkout.replaying(1)
    (job,) = [job for job in checkout.jobs() if job.endswith("RUNNING")]
    shown = cluster.run("scontrol", "show", "job", "--details", job.split()[0])
    launchers = [p for p in checkout.ranks() if "scripts/replay.py" in " ".join(p.cmdline()[:3])]
    hosts = {read(path)["host"] for path in attempt.glob("rank*/started.json")}
    code, output = finish(process)
    assert code == 0, output[-3000:]
    checkout.assert_nothing_left()
    return Watched(checkout, output, shown, len(launchers), hosts)


@pytest.fixture(scope="session")
def finished(watched: Watched) -> SlurmCheckout:
    """A stub checkout whose points are all done."""
    return watched.checkout


@pytest.fixture
def again(finished: SlurmCheckout, tmp_path: Path) -> Iterator[SlurmCheckout]:
    """A copy of it for one test, in which only point 2 is missing; nothing may be left after it."""
    folder = tmp_path / "again"
    shutil.copytree(finished.folder, folder, symlinks=True)
    copy = SlurmCheckout(folder, finished.cluster, finished.recipe, finished.config)
    shutil.rmtree(copy.point(2))
    before = digest_of(copy, 1)
    yield copy
    copy.stop()
    copy.assert_nothing_left()
    assert digest_of(copy, 1) == before, "a finished point was touched"


def digest_of(checkout: SlurmCheckout, concurrency: int) -> str:
    """Hash of a finished point."""
    content = (checkout.point(concurrency) / "replay.json").read_bytes()
    return hashlib.sha256(content).hexdigest()
