"""What the driving code does to a measurement, as numbers, and the version of it.

A point is measured again when its plan, weights, image, patches, traces or client change, or when
VERSION below does. An edit of the driving code itself makes nothing stale: a typo in a message must
not cost hours. Whoever changes what is measured, or a number here, raises VERSION; a test fails
when the numbers change and the version does not.
"""

from __future__ import annotations

from typing import NamedTuple

VERSION = 2


class Constants(NamedTuple):
    """Numbers that can change a measurement or its verdict. Times in seconds."""

    poll_s: float = 0.2
    """How often ranks and client are looked at."""
    probe_timeout_s: float = 2.0
    """Longest wait for one answer of /health or /v1/models."""
    ready_tokens: int = 8
    """Tokens of the readiness completion."""
    ready_prompt: str = "Say something."
    """Its prompt."""
    client_interrupt_grace_s: float = 60.0
    """How long the client may export after SIGINT."""
    beat_every_s: float = 1.0
    """How often a rank's holder says that it is there."""
    lost_after_s: float = 15.0
    """After how long a silence a rank counts as lost."""
    holder_grace_s: float = 10.0
    """What a holder may need beyond the rank's grace and kill: clean-up, Slurm's way back."""
    export_s: float = 20.0
    """What an interrupted client usually needs to export, kept free before a job's time limit."""
    better_cause_s: float = 2.0
    """How long a failed client is not blamed, in case a rank or the whole job failed with it."""
    kill_grace_s: float = 10.0
    """How long a killed process may take to vanish."""
    note_shared_memory_every_s: float = 5.0
    """How often the ranks' shared memory is noted, for removal after a kill."""
    progress_every_s: float = 10.0
    """How often progress is told."""
    token_margin: float = 0.02
    """How far server and client may differ in tokens, as a share of the client's."""
    acceptance_margin: float = 0.05
    """How far the acceptance length may be from the recipe's, as a share."""
    coverage_margin_s: float = 2.0
    """How much longer than the idle cap no request may be under way: the client's own reaction."""
    lanes_share: float = 0.98
    """Share of the window in which every lane must be alive."""
    dropped_share: float = 0.01
    """Share of the sent requests that the client may give up at the end of its drain."""
    unsampled_s: float = 10.0
    """For how long of the window the client may get no metrics from the server."""
    clock_skew_s: float = 1.0
    """How far the clocks of two nodes may differ when a point starts."""


CONSTANTS = Constants()
