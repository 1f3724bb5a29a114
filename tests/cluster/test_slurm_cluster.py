"""The development cluster itself: it starts, breaks where told to, and leaves nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devslurm import cgroups, hosts, packages, processes
from slurm_cluster import ClusterError, ClusterSpec, SlurmCluster
from slurm_required import require_slurm

CLI = Path(__file__).with_name("slurm_cluster.py")
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(slurm: None) -> Iterator[SlurmCluster]:
    """One cluster for the tests that break nothing."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    with SlurmCluster(folder, nodes=2, gpus=8) as running:
        yield running
    shutil.rmtree(folder)


def cli(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line program."""
    command = [sys.executable, str(CLI), words[0], "--state", str(state), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def submit(cluster: SlurmCluster, *options: str, script: str) -> str:
    """Submit a batch script without output and return its job id."""
    return cluster.run("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script).strip()


def job(cluster: SlurmCluster, number: str) -> dict[str, str]:
    """Return what scontrol knows about a job."""
    text = cluster.run("scontrol", "show", "job", "--details", number)
    return dict(re.findall(r"(\S+?)=(\S*)", text))


def wait_for_job(cluster: SlurmCluster, number: str, state: str, timeout_s: float = 15) -> None:
    """Wait until a job is in `state`."""
    deadline = time.monotonic() + timeout_s
    while (found := job(cluster, number)["JobState"]) != state:
        assert time.monotonic() < deadline, f"job {number} is {found}, not {state}"
        time.sleep(0.1)


def traces(state: Path) -> list[str]:
    """Return everything that still points to a cluster: processes, mounts, files.

    Cgroups are looked at by the fixture `state`, which knows those of other clusters.
    """
    mark = str(state).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in text and processes.living(int(entry.name)):
                found.append(f"process {entry.name}: {text[-300:]!r}")
    found += [
        line for line in Path("/proc/self/mounts").read_text().splitlines() if mark in line.encode()
    ]
    found += [str(path) for path in state.iterdir() if path.name != "log"]
    found += [str(path) for path in state.rglob("*") if not (path.is_dir() or path.is_file())]
    return found


def test_nodes_have_their_own_names_and_addresses(cluster: SlurmCluster) -> None:
    output = cluster.run(
        "srun",
        "-N2",
        "--ntasks-per-node=1",
        "sh",
        "-c",
        "echo $(hostname) $(getent hosts node1 node2)",
    )
    pairs = [f"{cluster.ports.address(number)} node{number}" for number in (1, 2)]
    assert sorted(output.splitlines()) == [f"node{number} {' '.join(pairs)}" for number in (1, 2)]
    assert all(pair.startswith("127.") for pair in pairs)


def test_gpus_are_allocated_and_shown_to_steps(cluster: SlurmCluster) -> None:
    number = submit(cluster, "-N2", "--gres=gpu:8", script="sleep 60")
    wait_for_job(cluster, number, "RUNNING")
    found = job(cluster, number)
    assert found["GRES"] == "gpu:mi355x:8(IDX:0-7)"
    assert "GresUsed=gpu:mi355x:8" in cluster.run("scontrol", "show", "node", "-d", "node2")
    waiting = submit(cluster, "--gres=gpu:1", script="true")
    assert job(cluster, waiting)["JobState"] == "PENDING"
    cluster.run("scancel", number)
    wait_for_job(cluster, waiting, "COMPLETED")
    step = cluster.run("srun", "--gres=gpu:2", "sh", "-c", "echo $ROCR_VISIBLE_DEVICES")
    assert step == "0,1\n"


def test_more_gpus_than_a_node_has_are_rejected(cluster: SlurmCluster) -> None:
    with pytest.raises(ClusterError, match="Requested node configuration is not available"):
        submit(cluster, "-N2", "--gres=gpu:9", script="true")


def test_jobs_find_slurm_without_any_variable(cluster: SlurmCluster) -> None:
    """The Snakemake plugin removes all SLURM_* inside of jobs, SLURM_CONF too."""
    script = "env -i PATH=$PATH squeue -h -o %N -j $SLURM_JOB_ID"
    assert cluster.run("srun", "-w", "node2", "sh", "-c", script) == "node2\n"


@pytest.mark.nightly
def test_controller_restart_keeps_a_running_job(cluster: SlurmCluster) -> None:
    number = submit(cluster, "-N2", script="srun sleep 5")
    wait_for_job(cluster, number, "RUNNING")
    # An srun that asks for its step while there is no controller tries again after a minute only.
    while f"{number}.0" not in cluster.run("squeue", "-h", "--steps", "-o", "%i").split():
        time.sleep(0.1)
    before = job(cluster, number)
    pid = processes.recorded(cluster.layout.pid("slurmctld"))
    cluster.restart_controller()
    assert processes.recorded(cluster.layout.pid("slurmctld")) != pid
    after = job(cluster, number)
    assert after["JobState"] == "RUNNING"
    assert (after["StartTime"], after["Restarts"]) == (before["StartTime"], "0")
    wait_for_job(cluster, number, "COMPLETED", 60)


def test_second_up_is_refused(cluster: SlurmCluster) -> None:
    with pytest.raises(ClusterError, match=r"a cluster is up in .*run `down"):
        SlurmCluster(cluster.layout.state).up()
    assert cluster.node_state(1) == "IDLE"


def test_foreign_files_are_refused_and_kept(state: Path) -> None:
    (state / "thesis.txt").write_text("years of work")
    with pytest.raises(ClusterError, match=r"holds other files \(thesis.txt\)"):
        SlurmCluster(state).up()
    SlurmCluster(state).down()
    assert (state / "thesis.txt").exists()


def test_command_line_side_by_side_with_another_cluster(cluster: SlurmCluster, state: Path) -> None:
    up = cli(state, "up", "--nodes", "3", "--gpus", "0", "--cpus", "4")
    assert (up.returncode, up.stderr) == (0, "")
    other = SlurmCluster(state)
    try:
        assert other.ports.address(1) != cluster.ports.address(1)
        shell = f"eval '{cli(state, 'env').stdout}'; srun -N3 hostname"
        done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
        assert sorted(done.stdout.split()) == ["node1", "node2", "node3"]
        assert len(cluster.run("srun", "-N2", "hostname").split()) == 2
        done = cli(state, "exec", "--", "sinfo", "-h", "-o", "%D %c")
        assert done.stdout == "3 4\n"
        assert "node3 idle 4" in cli(state, "status").stdout
    finally:
        down = cli(state, "down")
    assert (down.returncode, traces(state)) == (0, [])
    assert cluster.node_state(1) == "IDLE"
    refused = cli(state, "status")
    assert refused.returncode == 1
    assert f"no cluster in {state}" in refused.stderr


def test_power_failure_and_return_of_a_node(state: Path) -> None:
    with SlurmCluster(state, nodes=2, gpus=1, node_timeout_s=3, message_timeout_s=2) as cluster:
        # A job that is killed while it is being launched is queued again, --no-requeue or not.
        started = state / "log" / "started"
        # A process that has left its session and its parent: linuxproc alone would not find it.
        script = f"setsid -f sleep 300; touch {started}; sleep 300"
        number = submit(cluster, "-w", "node2", "--no-requeue", script=script)
        wait_for_job(cluster, number, "RUNNING")
        while not started.exists():
            time.sleep(0.05)
        cluster.kill_node(2)
        with pytest.raises(ClusterError, match="node2 is not running"):
            cluster.kill_node(2)
        cluster.wait_for_node(2, "DOWN", timeout_s=20)
        wait_for_job(cluster, number, "NODE_FAIL")
        assert cluster.run("srun", "-N1", "hostname") == "node1\n"
        cluster.start_node(2)
        assert sorted(cluster.run("srun", "-N2", "hostname").split()) == ["node1", "node2"]
    assert traces(state) == []


def test_down_ends_running_jobs_and_leaves_only_logs(state: Path) -> None:
    with SlurmCluster(state, nodes=2, gpus=8) as cluster:
        number = submit(cluster, "-N2", script="trap '' TERM; srun sleep 300; sleep 300")
        wait_for_job(cluster, number, "RUNNING")
        assert traces(state)
    assert traces(state) == []
    assert (state / "log" / "slurmctld.log").exists()
    SlurmCluster(state).down()


@pytest.mark.parametrize("last", ["munged", "slurmctld", "node2"])
def test_down_after_up_was_killed(state: Path, last: str) -> None:
    up = subprocess.Popen([sys.executable, str(CLI), "up", "--state", str(state)])
    deadline = time.monotonic() + 20
    while not (state / "pids" / last).exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    up.send_signal(signal.SIGKILL)
    up.wait()
    with pytest.raises(ClusterError, match="or a crash left one"):
        SlurmCluster(state).up()
    SlurmCluster(state).down()
    assert traces(state) == []


def test_failed_start_says_why_and_leaves_nothing(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devslurm.config.slurm_conf", lambda *_: "ClusterName=dev\nNonsense=1\n")
    with pytest.raises(ClusterError, match=r"slurmctld has ended: .*Nonsense"):
        SlurmCluster(state).up()
    assert traces(state) == []


@pytest.mark.nightly
def test_accounting_remembers_jobs(state: Path) -> None:
    require_slurm(accounting=True)
    with SlurmCluster(state, nodes=2, accounting=True) as cluster:
        cluster.run("srun", "-N2", "--gres=gpu:8", "true")
        row = ""
        deadline = time.monotonic() + 20
        while "COMPLETED" not in row and time.monotonic() < deadline:
            time.sleep(0.2)
            row = cluster.run("sacct", "-n", "-X", "-P", "-o", "State,NodeList,AllocTRES")
        assert row.startswith("COMPLETED|node[1-2]|")
        assert "gres/gpu=16" in row
    assert traces(state) == []


def test_cgroup_mode_kills_a_step_that_is_out_of_memory(state: Path) -> None:
    try:
        cgroups.require()
    except ClusterError as error:
        pytest.skip(str(error))
    with SlurmCluster(state, nodes=2, gpus=0, cgroup=True) as cluster:
        hungry = f"{sys.executable} -c \"bytearray(300 << 20); print('alive')\""
        number = submit(cluster, "--mem=100", script=hungry)
        wait_for_job(cluster, number, "OUT_OF_MEMORY")
    assert traces(state) == []


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "SEARCH_PATH", "/nowhere")
    with pytest.raises(ClusterError, match=r"apt-get install .*munge .*slurm-wlm"):
        packages.require(accounting=False)


def test_ordinary_user_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="must run as root, found uid 1000"):
        hosts.require_privileges()


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(ClusterError, match="nodes: expected 1 to 99, found 0"):
        ClusterSpec(nodes=0)
    with pytest.raises(ClusterError, match="choose a shorter path"):
        SlurmCluster("/tmp/" + "x" * 80)
    with pytest.raises(ClusterError, match="letters, digits"):
        SlurmCluster("/tmp/a b")
