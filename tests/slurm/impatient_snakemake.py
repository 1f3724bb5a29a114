"""Snakemake whose Slurm executor asks every 2 s for its jobs.

The executor waits 10 s longer each time that nothing has ended, which is right for jobs of hours, and
would be most of the time of these tests. What it asks, and what it does with the answer, is its own.
"""

from __future__ import annotations

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import (  # type: ignore[import-untyped]
    RemoteExecutor,
)

INTERVAL_S = 2


class _Constant:
    """An interval that stays, whatever the executor would change it to."""

    def __get__(self, executor: object, owner: type) -> int:
        return INTERVAL_S

    def __set__(self, executor: object, value: object) -> None:
        pass


if __name__ == "__main__":
    RemoteExecutor.next_seconds_between_status_checks = _Constant()
    main()
