"""What the workflow costs: its three-point sweep against a plain shell script, in one run.

The script starts the same servers with the same words, waits for /health, runs the same client
commands and stops the servers the same way. Everything else is the workflow's own: Snakemake, the
readiness completion, proofs, gates, the summary, plot and report.

    .venv/bin/python benchmarks/overhead.py [--repeats N]     (after `make demo`; 7 minutes a repeat)
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BASE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BASE / "scripts"))

from serve_repro.client import hub  # noqa: E402
from serve_repro.launch.environment import clean_environment  # noqa: E402

POINTS = "results/tiny-cpu-tp1pp2/conc*/replay.json"
STOP_S = 3  # the recipe's deadlines.stop_s


def main() -> None:
    """Print each repeat's seconds and ratio, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=1, help="pairs of runs")
    arguments = parser.parse_args()
    ratios = []
    for repeat in range(arguments.repeats):
        workflow_s = timed_workflow()
        points = sorted(BASE.glob(POINTS))
        own = [json.loads(path.read_text(encoding="utf-8"))["seconds"] for path in points]
        script_s = timed_script(points)
        ratios.append(workflow_s / script_s)
        needed = sum(seconds["first_tokens"] + seconds["judge"] for seconds in own)
        print(
            f"repeat {repeat + 1}: workflow {workflow_s:.1f} s, script {script_s:.1f} s, "
            f"ratio {ratios[-1]:.3f}; readiness completions and gates took {needed:.1f} s, "
            f"without them {(workflow_s - needed) / script_s:.3f}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.3f} of {len(ratios)}")


def timed_workflow() -> float:
    """Seconds of a sweep in which all three points, the summary, plot and report are made again."""
    command = [sys.executable, "-m", "snakemake", "--profile", "local", "--forcerun", "replay"]
    started = time.monotonic()
    subprocess.run(command, cwd=BASE, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - started


def timed_script(points: list[Path]) -> float:
    """Seconds of the plain script for the same points."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        launches = [read_launch(path, folder) for path in points]
        script = folder / "sweep.sh"
        script.write_text("set -u\n" + "".join(map(shell_of_point, launches)), encoding="utf-8")
        started = time.monotonic()
        subprocess.run(["bash", str(script)], check=True, stdin=subprocess.DEVNULL)
        return time.monotonic() - started


def read_launch(point: Path, folder: Path) -> dict[str, Any]:
    """{folder, port, commands} of a point as it was launched, its folders replaced by fresh ones."""
    attempt = point.parent / json.loads(point.read_text(encoding="utf-8"))["attempt"]
    launch = json.loads((attempt / "launch.json").read_text(encoding="utf-8"))
    values, own = launch["values"][0], folder / point.parent.name
    fresh = {values["RUN_DIR"]: own, values["SCRATCH"]: own / "scratch"}
    commands = {"client": launch["client"]}
    for status in attempt.glob("rank*/started.json"):
        commands[status.parent.name] = json.loads(status.read_text(encoding="utf-8"))
        fresh[commands[status.parent.name]["scratch"]] = own / f"scratch-{status.parent.name}"
        (own / status.parent.name).mkdir(parents=True)
    text = json.dumps(commands)
    for old, new in fresh.items():
        text = text.replace(old, str(new))
        new.mkdir(parents=True, exist_ok=True)
    words = launch["client"]["argv"]
    tokenizer = words[words.index("--tokenizer") + 1]
    hub.prepare(own / "scratch/hub", tokenizer, Path(values["WEIGHTS_DIR"]), None)
    return {"folder": str(own), "port": values["API_PORT"], "commands": json.loads(text)}


def shell_of_point(launch: dict[str, Any]) -> str:
    """Start headless first, wait for /health, replay, stop, as a person would write it."""
    folder, port = launch["folder"], launch["port"]
    ranks = sorted((name for name in launch["commands"] if name.startswith("rank")), reverse=True)
    lines = []
    for name in ranks:
        words = shell_words(launch["commands"][name])
        lines.append(f"setsid {words} </dev/null >{shlex.quote(folder)}/{name}.log 2>&1 & {name}=$!")
    lines.append(f"until curl -sf -o /dev/null http://127.0.0.1:{port}/health; do sleep 0.2; done")
    client = shell_words(launch["commands"]["client"])
    lines.append(f"{client} </dev/null >{shlex.quote(folder)}/client.log 2>&1 || exit 1")
    pids = " ".join(f"${name}" for name in ranks)
    groups = " ".join(f"-${name}" for name in ranks)
    # A group that has ended by then makes the second kill complain; that is as wanted.
    lines.append(f"kill -TERM {pids}; sleep {STOP_S}; kill -KILL -- {groups} 2>/dev/null; wait {pids}")
    lines.append("true")
    return "\n".join(lines) + "\n"


def shell_words(command: dict[str, Any]) -> str:
    """`env -i NAME=value ... program ...`: the launcher's clean environment."""
    env = clean_environment() | command["env"]
    pairs = [f"{name}={value}" for name, value in env.items()]
    return shlex.join(["env", "-i", *pairs, *command["argv"]])


if __name__ == "__main__":
    if shutil.which("curl") is None:
        sys.exit("overhead.py needs curl")
    main()
