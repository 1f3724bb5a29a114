"""What a scheduler is asked for, as the resources that Snakemake's Slurm executor knows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from serve_repro.plan.model import Plan
from serve_repro.recipe.site import Site

STEP_MEMORY_MB = 4000
STEP_RUNTIME_MIN = 240
"""A step that proves one node: hashing the largest weights from a slow disk fits into this."""


def point_resources(
    plan: Plan, site: Site, nodes: list[str], kept_out: Collection[str] = ()
) -> dict[str, Any]:
    """One job a point: whole nodes, one launcher, which starts a step on each node itself.

    `mpi` makes the executor run the rule on the first node instead of inside a step of its own, from
    which no step on another node could be started; tasks_per_gpu 0 keeps it from asking for one task
    a GPU. On a site without Slurm all of it is without effect.

    Args:
        plan: the point.
        site: where it runs.
        nodes: those that may serve; none yet where they are still to be chosen.
        kept_out: nodes in quarantine. Where too few would be left, they are asked for all the same: a
            job that starts and refuses them says why, and one that waits for ever does not.
    """
    count = len(plan.ranks)
    extra = []
    if site.slurm is not None:
        extra = ["--ntasks-per-node=1", "--exclusive"]
        if len(nodes) == count:
            extra.append(f"--nodelist={','.join(nodes)}")
        else:
            healthy = set(nodes) - set(kept_out)
            out = [entry.node for entry in site.excludes]
            out += sorted(set(nodes) - healthy) if len(healthy) >= count else []
            extra += [f"--exclude={','.join(out)}"] if out else []
    return {
        **_common(site),
        "nodes": count,
        "tasks": count,
        "mpi": "srun" if count > 1 else "",
        "gres": (site.slurm.gres if site.slurm else None) or "",
        "tasks_per_gpu": 0,
        "cpus_per_task": site.slurm.cpus_per_node if site.slurm else 1,
        "mem_mb": site.slurm.memory_mb_per_node if site.slurm else 0,
        "runtime": plan.request.runtime_min,
        "slurm_extra": " ".join(extra),
    }


def step_resources(node: str, site: Site) -> dict[str, Any]:
    """One small job on one named node, without GPUs: it proves that node."""
    return {
        **_common(site),
        "nodes": 1,
        "tasks": 1,
        "mem_mb": STEP_MEMORY_MB,
        "runtime": STEP_RUNTIME_MIN,
        "slurm_extra": f"--nodelist={node}" if site.slurm else "",
    }


def _common(site: Site) -> dict[str, Any]:
    """An empty word counts as "not asked for"."""
    return {
        "slurm_partition": (site.slurm.partition if site.slurm else None) or "",
        "slurm_account": (site.slurm.account if site.slurm else None) or "",
    }
