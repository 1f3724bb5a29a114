"""Run the replay client as a process: watched, bounded, stopped so that it still exports."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from serve_repro.driver import CONSTANTS
from serve_repro.launch import leftovers
from serve_repro.launch.causes import tail
from serve_repro.launch.environment import clean_environment
from serve_repro.launch.exits import describe_exit
from serve_repro.launch.failure import ClientFailed, PointFailed
from serve_repro.plan.bindings import fill_all, fill_env
from serve_repro.plan.model import ClientPlan

LOGGER = logging.getLogger("serve_repro")


def run_client(
    plan: ClientPlan, values: dict[str, str], folder: Path, watch: Callable[[str], None]
) -> float:
    """Replay once; returns the seconds it took.

    Args:
        plan: the client's command and limits.
        values: what the plan's names stand for.
        folder: where its log goes (client.log); its artifacts go where the command says.
        watch: called at every look; raises if a rank ended or a stop came.

    Raises:
        ClientFailed: it ended badly.
        PointFailed: it cannot start, or ran past its limit, or whatever `watch` raises.
            While it runs, it is first interrupted, so that what it has measured is exported.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "client.log"
    run_id, noted = values["RUN_ID"], set[Path]()
    started = told = looked = time.monotonic()
    with log.open("ab") as stream:
        try:
            process = subprocess.Popen(
                fill_all(plan.command.argv, values),
                env=clean_environment() | fill_env(plan.command.env, values),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C reaches the launcher, which interrupts it once
            )
        except OSError as error:
            raise PointFailed("replay", f"the client cannot be started: {error}") from error
    try:
        while process.poll() is None:
            watch("replay")
            now = time.monotonic()
            if now - looked > CONSTANTS.note_shared_memory_every_s:
                looked = now
                noted |= leftovers.shared_memory_of(
                    leftovers.processes_of(run_id, "client", {process.pid})
                )
            if now - started > plan.limit_s:
                raise PointFailed("replay", f"the client ran past its limit of {plan.limit_s:.0f} s")
            if now - told > CONSTANTS.progress_every_s:
                told = now
                LOGGER.info("%s", _progress(plan, now - started))
            time.sleep(CONSTANTS.poll_s)
    finally:
        if process.poll() is None:
            _interrupt(process)
        remaining = leftovers.processes_of(run_id, "client", {process.pid})
        noted |= leftovers.shared_memory_of(remaining)
        leftovers.kill(remaining, CONSTANTS.kill_grace_s)
        # The client leaves a semaphore behind even when it ends by itself.
        leftovers.remove_shared_memory(noted)
    seconds = time.monotonic() - started
    if process.returncode:
        _look_for_a_better_cause(watch)
        raise ClientFailed(
            "replay",
            f"the client ended by {describe_exit(process.returncode)}",
            f"last lines of {log}:\n{tail(log, 20)}",
        )
    LOGGER.info("replay done after %.1f s", seconds)
    return seconds


def _progress(plan: ClientPlan, seconds: float) -> str:
    if plan.duration_s:
        return f"replaying for {seconds:.0f} s (window {plan.duration_s} s)"
    return f"evaluating for {seconds:.0f} s of at most {plan.limit_s:.0f} s"


def _look_for_a_better_cause(watch: Callable[[str], None]) -> None:
    """A client that fails with its server, or with the whole job, often does so first."""
    end = time.monotonic() + CONSTANTS.better_cause_s
    while time.monotonic() < end:
        watch("replay")
        time.sleep(CONSTANTS.poll_s)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """SIGINT makes the client export what it has; TERM would throw it away."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(CONSTANTS.client_interrupt_grace_s)
        LOGGER.info("client interrupted; it has exported what it had")
    except subprocess.TimeoutExpired:
        LOGGER.info("client did not stop after SIGINT; killed")
        process.kill()
        process.wait()
