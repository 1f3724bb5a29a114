"""Why a point ended without a number."""

from __future__ import annotations

from datetime import UTC, datetime


class PointFailed(Exception):
    """One point cannot be finished; its evidence stays and the other points go on.

    Args:
        stage: where it ended (nodes, boot, ready, replay, stop).
        reason: one line: which rank or part, what happened, and the cause if it is known.
        details: more lines for the log, such as the last words of a rank.
        bad_nodes: {node: why} of nodes that should not be tried again soon.
    """

    def __init__(
        self, stage: str, reason: str, details: str = "", bad_nodes: dict[str, str] | None = None
    ) -> None:
        self.stage = stage
        self.reason = reason
        self.details = details
        self.bad_nodes = bad_nodes or {}
        self.noticed = datetime.now(UTC)
        super().__init__(f"{stage}: {reason}")


class ClientFailed(PointFailed):
    """The client ended by itself, and badly. What it has exported can still be judged."""


class Interrupted(PointFailed):
    """Somebody asked to stop: Ctrl-C, a scheduler's TERM, or the workflow itself is gone."""
