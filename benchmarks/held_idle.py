"""GPU seconds that are held and neither serve nor replay: the workflow against one bash job a point.

The bash job does inside its allocation what the publication's job does there (InferenceX PR #2678):
looks whether the weights folder is empty on every node, prepares the traces, installs the client into
an environment of its own, and then starts the ranks and replays. The workflow does all of that before.

    sudo .venv/bin/python benchmarks/held_idle.py      (after `make demo`; about 8 minutes; needs Slurm)

Counted is the time of the job outside the span from the first rank's start to the last rank's end.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

BASE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BASE / "scripts"), str(BASE / "tests/cluster")]

import yaml  # noqa: E402

from slurm_cluster import SlurmCluster  # noqa: E402

RECIPE = "tiny-cpu-tp1pp2"
NODES, GPUS = 2, 8

_JOB = """#!/bin/bash
#SBATCH --nodes=2 --ntasks=2 --ntasks-per-node=1 --exclusive --gres=gpu:8 --mem=8000 --time=30
set -eum
cd {base}
for node in node1 node2; do
    srun --overlap -N1 -n1 -w $node bash -c 'ls resources/made/models/tiny-llama/* >/dev/null'
done
{python} scripts/make_traces.py --numbers {numbers} --output {work}/traces/manifest.json
{python} scripts/build_environment.py --definition envs/client --output {work}/client/environment.json
date +%s.%N >{work}/serving
srun --overlap -N1 -n1 -w node2 --input=none bash -c {rank1} >{work}/rank1.log 2>&1 &
srun --overlap -N1 -n1 -w node1 --input=none bash -c {rank0} >{work}/rank0.log 2>&1 &
until curl -sf -o /dev/null http://127.0.0.1:{port}/health; do sleep 0.2; done
bash -c {client} >{work}/client.log 2>&1
kill %1 %2
wait || echo "ranks ended by the signal, as wanted"
date +%s.%N >{work}/served
"""


def main() -> None:
    """Run both on one cluster and print seconds and their ratio."""
    state = Path(tempfile.mkdtemp(prefix="sr-"))
    with SlurmCluster(state / "s", nodes=NODES, gpus=GPUS) as cluster:
        ours = workflow_idle_s(cluster)
        theirs = bash_idle_s(cluster, state / "bash")
    shutil.rmtree(state)
    print(f"workflow: {', '.join(f'{seconds:.1f}' for seconds in ours)} s idle in {len(ours)} points")
    print(f"bash job: {theirs:.1f} s idle in one point")
    mean = sum(ours) / len(ours)
    print(f"per point {mean:.1f} s against {theirs:.1f} s: ratio {mean / theirs:.3f}")
    gpus = NODES * GPUS
    print(f"with {NODES} x {GPUS} GPUs: {mean * gpus:.0f} against {theirs * gpus:.0f} GPU seconds")


def workflow_idle_s(cluster: SlurmCluster) -> list[float]:
    """Idle seconds of each point of a sweep through Snakemake's executor."""
    command = [sys.executable, "-m", "snakemake", "--forcerun", "replay", "--profile", "slurm"]
    command += ["--configfile", "config/tiny-slurm.yaml"]
    subprocess.run(
        command,
        cwd=BASE,
        env=cluster.client_environment(),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    idle = []
    for path in sorted((BASE / "results" / RECIPE).glob("conc*/replay.json")):
        point = json.loads(path.read_text(encoding="utf-8"))
        held = held_s(cluster, point["slurm_job"])
        spans = point["seconds"]
        idle.append(held - spans["boot"] - spans["replay"] - spans["stop"])
    return idle


def bash_idle_s(cluster: SlurmCluster, work: Path) -> float:
    """Idle seconds of one bash job."""
    work.mkdir()
    script = work / "job.sh"
    script.write_text(job_text(work), encoding="utf-8")
    command = ["sbatch", "--parsable", f"--output={work}/job.log", str(script)]
    job = cluster.run(*command).strip()
    while job in cluster.run("squeue", "--noheader", "--format", "%i").split():
        time.sleep(1)
    if not (work / "served").is_file():
        sys.exit(f"the bash job failed:\n{(work / 'job.log').read_text(encoding='utf-8')[-3000:]}")
    first, last = (float((work / name).read_text(encoding="utf-8")) for name in ("serving", "served"))
    return held_s(cluster, job) - (last - first)


def job_text(work: Path) -> str:
    """The job, with the commands of the workflow's own first point."""
    point = sorted((BASE / "results" / RECIPE).glob("conc*/replay.json"))[0]
    attempt = point.parent / json.loads(point.read_text(encoding="utf-8"))["attempt"]
    launch = json.loads((attempt / "launch.json").read_text(encoding="utf-8"))
    values = launch["values"][0]
    commands = {"client": launch["client"]}
    fresh = {values["RUN_DIR"]: str(work / "run"), values["SCRATCH"]: str(work / "scratch")}
    for status in attempt.glob("rank*/started.json"):
        commands[status.parent.name] = json.loads(status.read_text(encoding="utf-8"))
        fresh[commands[status.parent.name]["scratch"]] = str(work / f"scratch-{status.parent.name}")
    fresh[values["CLIENT_PYTHON"]] = str(work / "client/bin/python")
    text = json.dumps(commands)
    for old, new in fresh.items():
        text = text.replace(old, new)
        if "client/bin" not in new:
            Path(new).mkdir(parents=True, exist_ok=True)
    for rank in ("rank0", "rank1"):
        (work / "run" / rank).mkdir()
    hub = work / "scratch/hub/models--serve-repro--tiny-llama"
    (hub / "snapshots").mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text("made", encoding="utf-8")
    (hub / "snapshots/made").symlink_to(values["WEIGHTS_DIR"])
    recipe = (BASE / "config/recipes" / f"{RECIPE}.yaml").read_text(encoding="utf-8")
    numbers = json.dumps(yaml.safe_load(recipe)["replay"]["dataset"]["made"])
    words = {
        name: shlex.quote(
            shlex.join(["env", *(f"{k}={v}" for k, v in command["env"].items()), *command["argv"]])
        )
        for name, command in json.loads(text).items()
    }
    return _JOB.format(
        base=BASE,
        python=sys.executable,
        work=work,
        port=values["API_PORT"],
        numbers=shlex.quote(numbers),
        **words,
    )


def held_s(cluster: SlurmCluster, job: str) -> float:
    """Seconds for which Slurm gave a finished job its nodes."""
    shown = cluster.run("scontrol", "show", "job", job)
    start, end = (re.search(rf"{name}Time=(\S+)", shown) for name in ("Start", "End"))
    assert start is not None
    assert end is not None
    return (datetime.fromisoformat(end[1]) - datetime.fromisoformat(start[1])).total_seconds()


if __name__ == "__main__":
    main()
