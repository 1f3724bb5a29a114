"""Requests to stop, noticed at safe places instead of in the middle of a clean-up."""

from __future__ import annotations

import signal
from types import FrameType

import psutil

from serve_repro.launch.failure import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Remembers the first signal; `check` raises for it. Later signals change nothing.

    A second Ctrl-C must not break the clean-up that the first one started: the clean-up has its
    own deadline, and is what keeps processes and memory from being left behind.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._workflow = workflow_above()
        for number in _SIGNALS:
            signal.signal(number, self._remember)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)

    def check(self, stage: str) -> None:
        """Raise if a stop was asked for.

        Raises:
            Interrupted: a signal came, or the Snakemake that started this point is gone (then nobody
                waits for the point any more, and a rerun would meet its servers).
        """
        if self.received is not None:
            raise Interrupted(stage, f"interrupted by {self.received.name}")
        # is_running compares the start time too: a reused process id does not fool it.
        if self._workflow is not None and not self._workflow.is_running():
            raise Interrupted(stage, "the workflow that started this point is gone")


def workflow_above() -> psutil.Process | None:
    """The nearest Snakemake among this process's ancestors; None when it was started by hand."""
    for process in psutil.Process().parents():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any("snakemake" in word.rpartition("/")[2] for word in words[:3]):
            return process
    return None
