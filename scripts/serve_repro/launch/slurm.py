"""The Slurm job that a point runs in: its nodes, its end, and what a step needs to know of it."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import datetime
from typing import NamedTuple

from serve_repro.errors import UserError

_STEP_NEEDS = ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME")
_TIMEOUT_S = 30.0
_ATTEMPTS, _PAUSE_S = 6, 5.0


class Allocation(NamedTuple):
    """One job's allocation."""

    job_id: str
    nodes: list[str]
    """In Slurm's order, which is that of ranks."""
    start: datetime
    """When Slurm gave the nodes (local time)."""
    end: datetime | None
    """When Slurm will end the job (local time); None without a limit."""


def slurm_environment() -> dict[str, str]:
    """What srun and squeue need from the job's environment, and no option in disguise."""
    return {name: os.environ[name] for name in _STEP_NEEDS if name in os.environ}


def allocation() -> Allocation:
    """The allocation that this process runs in.

    Raises:
        UserError: it runs in none, or Slurm does not answer.
    """
    job_id = os.environ.get("SLURM_JOB_ID")
    if not job_id:
        raise UserError(
            "this site starts ranks as Slurm steps, and this is no Slurm job",
            where="SLURM_JOB_ID",
            expected="a job that Snakemake's Slurm executor has started",
            remedy="snakemake --profile slurm ...",
        )
    # Inside a job, SLURM_JOB_NODELIST may be that of a step, or missing: ask for the job's own.
    asked = ask(["squeue", "--noheader", "--job", job_id, "--format", "%N|%S|%e"])
    nodelist, start, end = asked.split("|")
    nodes = ask(["scontrol", "show", "hostnames", nodelist]).split()
    limited = end and end not in ("NONE", "N/A")
    ends = datetime.fromisoformat(end) if limited else None
    return Allocation(job_id, nodes, datetime.fromisoformat(start), ends)


def seconds_left(current: Allocation) -> float | None:
    """Seconds until Slurm ends the job; None without a limit."""
    return None if current.end is None else (current.end - datetime.now()).total_seconds()


def job_record(job_id: str) -> str:
    """Slurm's own words about a job: state, nodes, resources, times.

    Raises:
        UserError: Slurm does not answer.
    """
    return ask(["scontrol", "show", "job", "--details", job_id])


def ask(words: list[str]) -> str:
    """Slurm's answer; a controller that is busy or just restarts fails or says nothing for a while.

    Raises:
        UserError: it goes on to do so.
    """
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            run = subprocess.run(words, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            problem = (getattr(error, "stderr", None) or str(error)).strip()
        else:
            if run.stdout.strip():
                return run.stdout.strip()
            problem = "an empty answer"
        time.sleep(_PAUSE_S)
    raise UserError(f"Slurm does not answer: {problem}", where=" ".join(words))
