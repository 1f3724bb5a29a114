"""Where a point runs: the node of each rank, and how long it may stay there."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from serve_repro.driver import CONSTANTS
from serve_repro.errors import UserError
from serve_repro.launch.failure import Interrupted
from serve_repro.launch.slurm import Allocation, allocation, seconds_left
from serve_repro.plan.model import Plan


class Place(NamedTuple):
    """The nodes of one attempt."""

    nodes: list[str]
    """By rank. This process runs on the first."""
    job: Allocation | None
    """The Slurm job, where there is one."""

    def waited_s(self, started_at: datetime) -> float:
        """Seconds for which the job held its nodes before the first rank was started."""
        if self.job is None:
            return 0.0
        return (started_at - self.job.start.astimezone()).total_seconds()

    def check_time(self, plan: Plan, stage: str) -> None:
        """Stop while there is still time to export, to stop and to write down why.

        Raises:
            Interrupted: Slurm will end the job soon.
        """
        left = None if self.job is None else seconds_left(self.job)
        if left is not None and left < reserve_s(plan):
            raise Interrupted(stage, f"Slurm ends the job in {left:.0f} s: its time limit is near")


def find_place(plan: Plan) -> Place:
    """The nodes that this process was given for the plan's ranks.

    Raises:
        UserError: no or another allocation than the plan needs, or too little time left in it.
    """
    if plan.runner == "local":
        return Place(plan.nodes * len(plan.ranks), None)
    job = allocation()
    where = f"Slurm job {job.job_id}"
    if len(job.nodes) != len(plan.ranks):
        raise UserError(
            "the job's nodes are not as many as the ranks",
            where=where,
            expected=f"{len(plan.ranks)} nodes",
            found=job.nodes,
        )
    strangers = sorted(set(job.nodes) - set(plan.nodes))
    if strangers and plan.nodes:  # of chosen nodes, the receipts tell which they are
        raise UserError(
            "the job runs on nodes that the site does not name, so nothing is proven on them",
            where=where,
            expected=f"nodes of {plan.nodes}",
            found=strangers,
            remedy=f"add them to nodes in config/sites/{plan.site}.yaml, or exclude them in Slurm",
        )
    left, needed = seconds_left(job), needed_s(plan)
    if left is not None and left < needed:
        raise UserError(
            "the point cannot finish in the time that the job has left, so it is not begun",
            where=where,
            expected=f"at least {needed:.0f} s (window, drain and stop)",
            found=f"{left:.0f} s",
        )
    return Place(job.nodes, job)


def needed_s(plan: Plan) -> float:
    """Seconds that even the quickest run of a plan needs: its window, and the way out."""
    return plan.client.duration_s + reserve_s(plan)


def reserve_s(plan: Plan) -> float:
    """Seconds that must be left for the way out: export, stop, kill, write."""
    ranks = plan.readiness.stop_s + CONSTANTS.kill_grace_s + CONSTANTS.holder_grace_s
    return ranks + CONSTANTS.export_s
