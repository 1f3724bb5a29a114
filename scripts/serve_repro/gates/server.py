"""Gates on the server: which one it is, where it runs, and how it schedules."""

from __future__ import annotations

import re

from serve_repro.driver import CONSTANTS
from serve_repro.gates.evidence import Evidence, Serving
from serve_repro.gates.result import Result, result
from serve_repro.plan.model import Plan

_GPUS = re.compile(
    r"\bJOB_GRES=\S*?gpu(?::[^\d\s,:][^\s,:]*)?:(\d+)"  # the whole job's, its type named or not
    r"|\b(?:Alloc)?TRES=\S*?gres/gpu=(\d+)"  # only where Slurm is told to account for them
)


def clock_skew(plan: Plan, evidence: Evidence) -> Result:
    """The nodes' clocks agreed when the point was started; half a round trip is what is not known."""
    silent = sorted(node for node, clock in evidence.clocks.items() if clock is None)
    if silent or not evidence.clocks:
        told = f"node {', '.join(silent)}" if silent else "any node"
        return result("clock_skew", None, f"the clock of {told} was not compared")
    seen = [
        (clock["offset_s"], clock["round_trip_s"] / 2) for clock in evidence.clocks.values() if clock
    ]
    offsets = [offset for offset, _ in seen]
    skew, unsure = max(offsets) - min(offsets), sum(sorted(half for _, half in seen)[-2:])
    told = f"{skew:.3f} s between {len(seen)} nodes, known to {unsure:.3f} s"
    if len(seen) == 1:
        return result("clock_skew", True, "one node, one clock")
    if skew + unsure <= CONSTANTS.clock_skew_s:
        return result("clock_skew", True, told)
    return result("clock_skew", False if skew - unsure > CONSTANTS.clock_skew_s else None, told)


def metrics_model(plan: Plan, evidence: Serving | Evidence) -> Result:
    """/metrics speaks of the recipe's model, and of no other."""
    if not evidence.metrics_of:
        return result("metrics_model", None, "no metric of vLLM names a model")
    good = evidence.metrics_of == {plan.expect.served_name}
    return result("metrics_model", good, f"metrics of {', '.join(sorted(evidence.metrics_of))}")


def world_size(plan: Plan, evidence: Serving | Evidence) -> Result:
    """As many workers met as the per-GPU figures are divided by, in the stages that are planned."""
    wanted = plan.topology.world_size
    workers = {pair for log in evidence.logs for pair in log.workers}
    if not workers:
        return result("world_size", None, "no worker says its rank in any log")
    seen = f"workers (rank, world size) {sorted(workers)}, planned {wanted}"
    good = workers == {(rank, wanted) for rank in range(wanted)}
    replicas = {replica for log in evidence.logs for replica in log.replicas}
    if replicas - {0}:
        return result("world_size", False, f"data-parallel ranks {sorted(replicas)}; {seen}")
    stages = {rank: stage for log in evidence.logs for rank, stage in log.stages.items()}
    # A stage's workers follow each other; of each node's workers only the first names its stage.
    bad = {rank: s for rank, s in stages.items() if s != rank // plan.topology.tensor_parallel}
    if bad:
        told = ", ".join(f"worker {rank} in stage {stage}" for rank, stage in sorted(bad.items()))
        return result("world_size", False, f"{told}; {seen}")
    return result("world_size", good, seen)


def allocation(plan: Plan, evidence: Evidence) -> Result:
    """Each rank has its share of the workers, and Slurm gave as many GPUs as figures are divided by."""
    share = plan.topology.accelerators_per_node
    counts = [len({rank for rank, _ in log.workers}) for log in evidence.logs]
    told = ", ".join(f"rank {rank}: {count}" for rank, count in enumerate(counts))
    seen = f"workers of {told}, planned {share} each"
    if counts != [share] * len(plan.ranks):
        return result("allocation", False if any(counts) else None, seen)
    if plan.runner == "local" or plan.topology.accelerator == "cpu":
        return result("allocation", True, f"{seen}; no GPUs were allocated")
    match = _GPUS.search(evidence.job or "")
    if match is None:
        return result("allocation", None, f"{seen}; Slurm's record of the job names no GPUs")
    gpus = int(match[1] or match[2])
    good = gpus == plan.topology.world_size
    return result("allocation", good, f"{seen}; Slurm gave {gpus} GPUs")


def async_scheduling(plan: Plan, evidence: Serving | Evidence) -> Result:
    """Scheduling is asynchronous exactly if the recipe says so, where it says anything.

    Some versions of vLLM log it. Others only repeat their command line: what it asks for they do or
    refuse to start, except on a CPU, where it is always off.
    """
    wanted = plan.expect.async_scheduling
    if wanted is None:
        return result("async_scheduling", True, "the recipe leaves it to vLLM")
    log = evidence.logs[0]
    if log.async_scheduling is not None:
        good = log.async_scheduling == wanted
        return result("async_scheduling", good, f"the server says on: {log.async_scheduling}")
    if log.async_asked is None:
        return result("async_scheduling", None, "rank 0's log does not tell")
    on = log.async_asked and plan.topology.accelerator != "cpu"
    return result("async_scheduling", on == wanted, f"its command line asks for: {log.async_asked}")
