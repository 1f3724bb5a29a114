"""Slurm: one step on one named node of the allocation that the point already has.

--overlap, because the job's processors and GPUs are the step's to use, whatever else runs in it.
"""

PREFIX = [
    "srun",
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--nodelist=${NODE}",
    "--kill-on-bad-exit=1",
]
