"""From the first process to a server that really answers: stages, progress and deadlines."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_repro.driver import CONSTANTS
from serve_repro.launch import api, network
from serve_repro.launch.failure import PointFailed
from serve_repro.plan.model import Plan

LOGGER = logging.getLogger("serve_repro")

BOOT_STAGES = [
    (r"world_size=\d+ rank=\d+|rank \d+ in world size \d+", "ranks have met"),
    (r"Starting to load model|Loading .*checkpoint shards|Loading weights", "loading weights"),
    (r"Loading weights took", "weights loaded"),
    (r"Compiling a graph|Dynamo bytecode transform", "compiling"),
    (r"GPU KV cache size|KV cache size:", "KV cache allocated"),
    (r"Capturing CUDA graphs|Graph capturing", "capturing graphs"),
    (r"Application startup complete", "API is up"),
]
"""(pattern in a rank's log, stage), for progress that a person can read."""

_WAITING = re.compile(
    r"[Ww]aiting for .* (core engine|engine|proc|clients)|No available shared memory broadcast block"
)
"""Lines that a server repeats while nothing happens: no progress."""


class BootLog:
    """Reads what ranks have logged since the last look, and what it means.

    Args:
        logs: one path a rank, by rank.
    """

    def __init__(self, logs: list[Path]) -> None:
        self._logs = logs
        self._read = [0] * len(logs)
        self._stages: list[set[str]] = [set() for _ in logs]

    def progressed(self) -> bool:
        """Whether any rank has logged something that is not mere waiting."""
        news = False
        for rank, path in enumerate(self._logs):
            for line in self._new_lines(rank, path):
                news = news or not _WAITING.search(line)
                self._tell_stage(rank, line)
        return news

    def _new_lines(self, rank: int, path: Path) -> list[str]:
        if not path.is_file():
            return []
        with path.open("rb") as stream:
            stream.seek(self._read[rank])
            text = stream.read()
        self._read[rank] += len(text)
        return text.decode(errors="replace").splitlines()

    def _tell_stage(self, rank: int, line: str) -> None:
        for pattern, stage in BOOT_STAGES:
            if stage not in self._stages[rank] and re.search(pattern, line):
                self._stages[rank].add(stage)
                LOGGER.info("rank %d: %s", rank, stage)


def wait_until_serving(
    plan: Plan,
    base: str,
    ours: Callable[[], set[int]],
    logs: list[Path],
    watch: Callable[[str], None],
) -> dict[str, Any]:
    """Wait for /health, the right model, and a real completion through all stages.

    Args:
        plan: the point.
        base: http://host:port of the API.
        ours: ids of the attempt's processes on this node: only a server among them is measured.
        logs: the ranks' logs, by rank.
        watch: called with the stage's name at every look; raises if a rank ended or a stop came.

    Returns:
        {model: the API's own entry, seconds: {healthy, first_tokens}}.

    Raises:
        PointFailed: a deadline passed, a stranger answered, or whatever `watch` raises.
    """
    started = time.monotonic()
    _wait_healthy(plan, base, BootLog(logs), watch, started)
    healthy = time.monotonic() - started
    LOGGER.info("API is healthy after %.1f s", healthy)
    _check_owner(base, ours())
    model = _check_model(plan, base)
    _complete(plan, base, watch)
    seconds = time.monotonic() - started
    LOGGER.info("serving: real tokens through all stages after %.1f s", seconds)
    return {"model": model, "seconds": {"healthy": healthy, "first_tokens": seconds}}


def _wait_healthy(
    plan: Plan, base: str, log: BootLog, watch: Callable[[str], None], started: float
) -> None:
    limits = plan.readiness
    progress = told = started
    while True:
        watch("boot")
        now = time.monotonic()
        if log.progressed():
            progress = now
        try:
            status, _ = api.get(f"{base}/health", CONSTANTS.probe_timeout_s)
            if status == 200:
                return
        except api.NoAnswer:
            pass
        if now - started > limits.boot_limit_s:
            raise PointFailed("boot", f"not healthy after {limits.boot_limit_s:.0f} s (boot_limit_s)")
        if now - progress > limits.boot_stall_s:
            raise PointFailed(
                "boot",
                f"no progress in any rank's log for {limits.boot_stall_s:.0f} s (boot_stall_s)",
            )
        if now - told > CONSTANTS.progress_every_s:
            told = now
            LOGGER.info("booting for %.0f of at most %.0f s", now - started, limits.boot_limit_s)
        time.sleep(CONSTANTS.poll_s)


def _check_owner(base: str, ours: set[int]) -> None:
    """The process that listens must be the attempt's: never measure a stranger."""
    port = int(base.rsplit(":", 1)[1])
    holders = network.listeners(port)
    if holders and not ours & set(holders):
        raise PointFailed(
            "ready",
            f"a stranger listens on port {port}: {network.holder(port)}; it is not measured",
        )


def _check_model(plan: Plan, base: str) -> dict[str, Any]:
    try:
        status, text = api.get(f"{base}/v1/models", CONSTANTS.probe_timeout_s)
        models = {entry["id"]: entry for entry in json.loads(text)["data"]} if status == 200 else {}
    except (api.NoAnswer, ValueError, KeyError, TypeError) as error:
        raise PointFailed("ready", f"/v1/models has no usable answer: {error}") from error
    wanted = plan.expect
    found = models.get(wanted.served_name)
    if found is None:
        raise PointFailed("ready", f"the server offers {sorted(models)}, expected {wanted.served_name}")
    if found.get("max_model_len") != wanted.max_model_len:
        raise PointFailed(
            "ready",
            f"the server's max_model_len is {found.get('max_model_len')}, "
            f"expected {wanted.max_model_len}",
        )
    return dict(found)


def _complete(plan: Plan, base: str, watch: Callable[[str], None]) -> None:
    """One completion in the background, so that a rank's death is seen while it hangs."""
    answers: list[dict[str, Any]] = []
    problems: list[str] = []
    limit = plan.readiness.first_tokens_s

    def ask() -> None:
        try:
            answers.append(
                api.complete(
                    base,
                    plan.expect.served_name,
                    CONSTANTS.ready_prompt,
                    CONSTANTS.ready_tokens,
                    limit,
                )
            )
        except api.NoAnswer as error:
            problems.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    started = time.monotonic()
    while thread.is_alive() and time.monotonic() - started < limit:
        watch("ready")
        thread.join(CONSTANTS.poll_s)
    if not answers:
        problem = problems[0] if problems else f"nothing within {limit:.0f} s (first_tokens_s)"
        raise PointFailed("ready", f"healthy, but a completion brought no tokens: {problem}")
    tokens = (answers[0].get("usage") or {}).get("completion_tokens")
    if tokens != CONSTANTS.ready_tokens:
        raise PointFailed(
            "ready", f"the completion has {tokens} tokens, expected {CONSTANTS.ready_tokens}"
        )
