"""One attempt at one point: boot, wait, check, replay, stop, judge. Evidence stays on every path."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from serve_repro import driver
from serve_repro.client import accuracy_task, hub
from serve_repro.client.run import run_client
from serve_repro.documents import read_json, write_json, write_text
from serve_repro.errors import UserError
from serve_repro.gates import accuracy
from serve_repro.gates.checks import judge, judge_serving
from serve_repro.gates.evidence import collect, collect_serving
from serve_repro.launch import api
from serve_repro.launch.failure import ClientFailed, Interrupted, PointFailed
from serve_repro.launch.interrupts import Interrupts
from serve_repro.launch.ranks import Ranks
from serve_repro.launch.readiness import wait_until_serving
from serve_repro.launch.slurm import job_record
from serve_repro.nodes import quarantine
from serve_repro.nodes.checks import HARDWARE, Check
from serve_repro.nodes.visit import visit_all
from serve_repro.patches.overlay import lay_view
from serve_repro.plan.bindings import fill_all, fill_env
from serve_repro.plan.model import EvaluationPlan, Plan
from serve_repro.point.place import Place, find_place
from serve_repro.point.proofs import Proofs, check_proofs, identity
from serve_repro.point.values import bind, weights_folder
from serve_repro.runtimes import RUNTIMES
from serve_repro.source import workflow_source

LOGGER = logging.getLogger("serve_repro")


def measure(plan: Plan, proofs: Proofs, folder: Path) -> dict[str, Any]:
    """Measure one point; returns what replay.json holds, whatever the outcome.

    Args:
        plan: the point.
        proofs: its receipts.
        folder: the point's folder; the attempt goes to <folder>/attempts/<UTC time>/.

    Returns:
        {status: valid | invalid | failed | interrupted, reason, gates, identity, attempt, ...}.

    Raises:
        UserError: something is wrong before anything was started.
    """
    interrupts = Interrupts()
    place = find_place(plan)
    kept_out = quarantine.path_of(quarantine.FOLDER, plan.site)
    quarantine.refuse(kept_out, place.nodes, datetime.now(UTC))
    check_proofs(plan, place.nodes, proofs)
    started = datetime.now(UTC)
    job = f"-job{place.job.job_id}" if place.job else ""
    run_id = f"{started:%Y%m%dT%H%M%S}-{plan.digest()[:8]}{job}"
    attempt = folder / "attempts" / f"{started:%Y%m%dT%H%M%SZ}"
    # Sockets live here: their paths may have no more than 107 characters.
    scratch = Path(tempfile.mkdtemp(prefix="serve-repro-"))
    point: dict[str, Any] = {
        "recipe": plan.recipe,
        "site": plan.site,
        "concurrency": plan.concurrency,
        "attempt": str(attempt.relative_to(folder)),
        "started": started.isoformat(timespec="seconds"),
        "nodes": place.nodes,
        "slurm_job": place.job.job_id if place.job else None,
        "world_size": plan.topology.world_size,
        "accelerator": plan.topology.accelerator,
        "window_s": plan.client.duration_s,
        "validity": plan.expect.validity,
        "validity_reasons": plan.expect.validity_reasons,
        "identity": identity(plan, proofs, driver.VERSION),
        "workflow": workflow_source(Path(__file__).parents[3]),
        "gates": [],
    }
    try:
        values = bind(plan, proofs, place.nodes, run_id, attempt, scratch)
        attempt.mkdir(parents=True)
        look_at_nodes(plan, place.nodes, values, attempt)
        interrupts.check("nodes")
        _lay_view(plan, proofs.patch_folder, attempt / "view")
        point["seconds"] = _drive(plan, place, values, attempt, proofs, interrupts)
        _save_job(place, attempt)
        began = time.monotonic()
        point |= _judge(plan, attempt, proofs.patch_folder)
        point["seconds"]["judge"] = round(time.monotonic() - began, 3)
    except PointFailed as failure:
        _save_job(place, attempt)
        if failure.details:
            LOGGER.info("%s", failure.details)
        if failure.bad_nodes and place.job is not None:
            quarantine.add(kept_out, failure.bad_nodes, datetime.now(UTC))
            LOGGER.info("in quarantine from now on: %s", failure.bad_nodes)
        if isinstance(failure, ClientFailed):
            point |= _judge(plan, attempt, proofs.patch_folder)
        point |= _failed(failure, point)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(attempt / "view", ignore_errors=True)
    write_json(attempt / "point.json", point)
    return point


def _failed(failure: PointFailed, judged: dict[str, Any]) -> dict[str, Any]:
    """Status, stage and reason; the gates' own reasons behind that of a client that gave up."""
    return {
        "status": "interrupted" if isinstance(failure, Interrupted) else "failed",
        "stage": failure.stage,
        "reason": "; ".join([failure.reason, *([judged["reason"]] if judged["gates"] else [])]),
        "noticed": failure.noticed.isoformat(timespec="milliseconds"),
    }


def _drive(
    plan: Plan,
    place: Place,
    values: list[dict[str, str]],
    attempt: Path,
    proofs: Proofs,
    interrupts: Interrupts,
) -> dict[str, float]:
    """Boot, replay, stop; returns the seconds of each stage.

    Raises:
        PointFailed: whatever ended the attempt early; the ranks are stopped by then.
    """
    write_json(attempt / "launch.json", _launched(plan, values))
    _prepare_hub(plan, values[0])
    if isinstance(plan, EvaluationPlan):
        accuracy_task.write(plan.accuracy, proofs.dataset, values[0])
    base = f"http://127.0.0.1:{values[0]['API_PORT']}"
    ranks = Ranks(plan, values, attempt)

    def watch(stage: str) -> None:
        interrupts.check(stage)
        place.check_time(plan, stage)
        ranks.check(stage)

    clock = time.monotonic
    began, started_at = clock(), datetime.now().astimezone()
    try:
        ranks.start()
        logs = [ranks.folder(rank.rank) / "server.log" for rank in plan.ranks]
        serving = wait_until_serving(plan, base, ranks.processes_here, logs, watch)
        write_json(attempt / "serving.json", serving)
        ready = clock()
        _save_metrics(base, attempt / "metrics_before.txt")
        _refuse_early(plan, attempt, proofs.patch_folder)
        try:
            run_client(plan.client, values[0], attempt / "client", watch)
        except ClientFailed:
            _save_last_metrics(base, attempt / "metrics_after.txt")
            raise
        _save_last_metrics(base, attempt / "metrics_after.txt")
        replayed = clock()
        watch("replay")
    except PointFailed as failure:
        try:
            ranks.stop()
        except PointFailed as second:  # the first reason is the one to tell
            failure.details += f"\nand then, while stopping: {second.reason}"
        late = [cause for cause in ranks.late_causes() if cause not in failure.reason]
        failure.reason = "; ".join([failure.reason, *late])
        raise
    except BaseException:
        ranks.stop()
        raise
    ranks.stop()
    stopped = clock()
    held = {} if place.job is None else {"held_idle": round(place.waited_s(started_at), 3)}
    healthy, tokens = serving["seconds"]["healthy"], serving["seconds"]["first_tokens"]
    return {
        **held,
        "boot": round(ready - began, 3),
        "first_tokens": round(tokens - healthy, 3),
        "replay": round(replayed - ready, 3),
        "stop": round(stopped - replayed, 3),
    }


def look_at_nodes(plan: Plan, nodes: list[str], values: list[dict[str, str]], attempt: Path) -> None:
    """Look at every node as it is now, before anything is started there.

    Raises:
        PointFailed: a node is not fit; each check that failed, with what was seen.
    """
    visits = visit_all(plan, nodes, values[0])
    write_json(attempt / "nodes.json", [visit.document() for visit in visits])
    told: dict[str, list[Check]] = {}
    for visit in visits:
        for check in visit.checks:
            if check.outcome != "pass":
                LOGGER.info("node %s: %s %s: %s", visit.node, *check)
            if check.outcome == "fail":
                told.setdefault(visit.node, []).append(check)
    if told:
        reasons = {
            node: "; ".join(f"{check.check}: {check.seen}" for check in checks)
            for node, checks in told.items()
        }
        broken = {node for node, checks in told.items() if {c.check for c in checks} & HARDWARE}
        raise PointFailed(
            "nodes",
            "; ".join(f"node {node} is not fit: {reason}" for node, reason in reasons.items()),
            bad_nodes={node: reasons[node] for node in broken},
        )


def _lay_view(plan: Plan, patch_folder: Path, target: Path) -> None:
    """Where ranks run without containers, patched packages are links around the changed files."""
    if not plan.patches or RUNTIMES[plan.runtime].view.overlay is None:
        return
    overlay = read_json(patch_folder / "overlay.json")
    if overlay["files"]:
        lay_view(overlay, patch_folder, target)


def _save_job(place: Place, attempt: Path) -> None:
    """Slurm's record of the job, for the evidence; a Slurm that is silent costs no result."""
    if place.job is None:
        return
    try:
        write_text(attempt / "slurm_job.txt", job_record(place.job.job_id) + "\n")
    except UserError as error:
        LOGGER.info("no record of the Slurm job: %s", error)


def _prepare_hub(plan: Plan, values: dict[str, str]) -> None:
    traces = Path(values["TRACES_DIR"]) if plan.client.hub_traces else None
    hub.prepare(Path(values["HUB_DIR"]), plan.client.tokenizer, weights_folder(values), traces)


def _launched(plan: Plan, values: list[dict[str, str]]) -> dict[str, Any]:
    """What this attempt starts on this node, word for word; each rank's own stands in its folder."""
    client = plan.client.command
    command = {"argv": fill_all(client.argv, values[0]), "env": fill_env(client.env, values[0])}
    return {"values": values, "client": command}


def _save_metrics(base: str, path: Path) -> None:
    try:
        status, text = api.get(f"{base}/metrics", driver.CONSTANTS.probe_timeout_s)
    except api.NoAnswer as error:
        raise PointFailed("replay", f"/metrics does not answer: {error}") from error
    if status != 200:
        raise PointFailed("replay", f"/metrics answers {status}")
    write_text(path, text)


def _save_last_metrics(base: str, path: Path) -> None:
    """The answer after the replay; where there is none, the gates say what cannot be told."""
    try:
        _save_metrics(base, path)
    except PointFailed as failure:
        LOGGER.info("%s", failure.reason)


def _refuse_early(plan: Plan, attempt: Path, patch_folder: Path) -> None:
    """Stop before the replay if the serving server is already known not to be the recipe's.

    Raises:
        PointFailed: names each gate that could not pass later, and what it saw.
    """
    metrics = attempt / "metrics_before.txt"
    try:
        bad = judge_serving(plan, collect_serving(attempt, len(plan.ranks), patch_folder, metrics))
    except (OSError, ValueError, KeyError, UserError) as error:
        raise PointFailed(
            "ready", f"what the server says of itself cannot be read: {error!r}"
        ) from error
    if bad:
        told = [f"{result.gate} {result.outcome}: {result.seen}" for result in bad]
        raise PointFailed("ready", f"not what the recipe serves: {'; '.join(told)}")


def _judge(plan: Plan, attempt: Path, patch_folder: Path) -> dict[str, Any]:
    """Status, reason and gates from the attempt's artifacts."""
    try:
        if isinstance(plan, EvaluationPlan):
            results = accuracy.judge(plan, accuracy.collect(plan, attempt, patch_folder))
        else:
            results = judge(plan, collect(attempt, len(plan.ranks), patch_folder))
    except (OSError, ValueError, KeyError, UserError) as error:
        return {"status": "invalid", "reason": f"artifacts cannot be judged: {error!r}"}
    bad = [result for result in results if result.outcome != "pass"]
    for result in results:
        LOGGER.info("gate %-16s %-8s %s", result.gate, result.outcome, result.seen)
    reason = "; ".join(f"{result.gate} {result.outcome}: {result.seen}" for result in bad)
    return {
        "status": "invalid" if bad else "valid",
        "reason": reason,
        "gates": [result._asdict() for result in results],
    }
