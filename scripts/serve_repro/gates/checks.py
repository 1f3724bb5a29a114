"""One function a gate: (plan, evidence) -> pass, fail or unknown, with what was seen.

What a gate cannot see is unknown, and unknown is not a pass.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from serve_repro.client.server_metrics import grown
from serve_repro.driver import CONSTANTS
from serve_repro.gates.evidence import Evidence, Serving
from serve_repro.patches.attestation import missing
from serve_repro.plan.model import Plan


class Result(NamedTuple):
    """What one gate found."""

    gate: str
    outcome: Literal["pass", "fail", "unknown"]
    seen: str


def _result(gate: str, good: bool | None, seen: str) -> Result:
    return Result(gate, "unknown" if good is None else "pass" if good else "fail", seen)


def not_cancelled(plan: Plan, evidence: Evidence) -> Result:
    """The client finished its window by itself."""
    cancelled = evidence.aggregate.get("was_cancelled")
    return _result(
        "not_cancelled", None if cancelled is None else not cancelled, f"was_cancelled {cancelled}"
    )


def window(plan: Plan, evidence: Evidence) -> Result:
    """The measured window is as long as planned, less one idle gap at its end at most."""
    duration = (evidence.aggregate.get("benchmark_duration") or {}).get("avg")
    if duration is None:
        return _result("window", None, "no benchmark_duration in the client's aggregate")
    good = duration >= plan.client.duration_s - plan.client.idle_gap_s
    return _result("window", good, f"{duration:.1f} s of {plan.client.duration_s} s")


def completed(plan: Plan, evidence: Evidence) -> Result:
    """Requests were answered, and each answer brought tokens."""
    total = evidence.totals
    good = total.completed > 0 and total.no_output == 0
    return _result(
        "completed", good, f"{total.completed} completed, {total.no_output} of them without a token"
    )


def errors(plan: Plan, evidence: Evidence) -> Result:
    """Errors per completed request stay within the recipe's limit; warm-up has none.

    An answer without a token is an error here, whatever the client calls it.
    """
    total = evidence.totals
    failed = total.failed + total.no_output
    warmup_failed = total.warmup_failed + total.warmup_no_output
    ratio = failed / max(total.completed - total.no_output, 1)
    good = ratio <= plan.expect.max_error_ratio and warmup_failed == 0
    return _result(
        "errors",
        good,
        f"{failed} failed of {total.completed + total.failed} "
        f"(limit {plan.expect.max_error_ratio:g} per completed), {warmup_failed} of "
        f"{total.warmup} in warm-up, kinds {total.errors}, "
        f"{total.no_output + total.warmup_no_output} without a token",
    )


def accounting(plan: Plan, evidence: Evidence) -> Result:
    """The records are all there: as many answers and errors as the client itself counted.

    Requests that the client cancels at the end of its drain are in neither count.
    """

    def count(name: str) -> float | None:
        found: float | None = (evidence.aggregate.get(name) or {}).get("avg")
        return found

    completed = count("request_count")
    if completed is None:
        return _result("accounting", None, "no request_count in the client's aggregate")
    failed = count("error_request_count") or 0  # the client exports it only if there was an error
    total = evidence.totals
    return _result(
        "accounting",
        (completed, failed) == (total.completed, total.failed),
        f"client counts {completed:.0f} answers and {failed:.0f} errors, "
        f"its records have {total.completed} and {total.failed}",
    )


def coverage(plan: Plan, evidence: Evidence) -> Result:
    """Requests were under way all through the window, but for the idle gaps that the client allows.

    This sees a load that stood still. That one of several lanes is dead it does not see: a lane may
    think or wait for its subagents for long, and no artifact says which lane sent a request.
    """
    found = evidence.activity
    if found is None:
        return _result("coverage", None, "no request was recorded in the window")
    limit = plan.client.idle_gap_s + CONSTANTS.coverage_margin_s
    return _result(
        "coverage",
        found.longest_gap_s <= limit,
        f"longest time without a request {found.longest_gap_s:.1f} s (limit {limit:g} s), "
        f"{found.in_flight:.2f} under way on average, {found.trees} session trees",
    )


def tokens(plan: Plan, evidence: Evidence) -> Result:
    """The server's token counters and the client's sums tell the same story."""
    told, good = [], True
    for name, client in (
        ("prompt", evidence.totals.input_tokens),
        ("generation", evidence.totals.output_tokens),
    ):
        server = grown(evidence.before, evidence.after, f"vllm:{name}_tokens_total")
        if server is None:
            return _result("tokens", None, f"the server has no vllm:{name}_tokens_total")
        told.append(f"{name}: server {server:.0f}, client {client}")
        good = good and client > 0 and abs(server - client) <= CONSTANTS.token_margin * client
    return _result("tokens", good, "; ".join(told))


def model_id(plan: Plan, evidence: Serving | Evidence) -> Result:
    """The server that was measured offers the recipe's model at the recipe's length."""
    found = (evidence.model.get("id"), evidence.model.get("max_model_len"))
    wanted = (plan.expect.served_name, plan.expect.max_model_len)
    return _result("model_id", found == wanted, f"serves {found[0]}, max_model_len {found[1]}")


def world_size(plan: Plan, evidence: Serving | Evidence) -> Result:
    """As many workers met as the per-GPU figures are divided by."""
    wanted = plan.topology.world_size
    workers = {pair for log in evidence.logs for pair in log.workers}
    if not workers:
        return _result("world_size", None, "no worker says its rank in any log")
    good = workers == {(rank, wanted) for rank in range(wanted)}
    seen = sorted(workers)
    return _result("world_size", good, f"workers (rank, world size) {seen}, planned {wanted}")


def patches(plan: Plan, evidence: Serving | Evidence) -> Result:
    """Every rank's workers say that they run with every patch of the recipe."""
    told = missing(evidence.attestations, evidence.hooks, plan.topology.accelerators_per_node)
    unknown = set(plan.patches) - {hook["id"] for hook in evidence.hooks}
    told += [f"{name} is not in the built patch set" for name in sorted(unknown)]
    lines = sum(len(lines) for lines in evidence.attestations)
    return _result("patches", not told, "; ".join(told) or f"{lines} attestations, all installed")


def prefix_caching(plan: Plan, evidence: Serving | Evidence) -> Result:
    """Prefix caching is on or off as planned."""
    info = evidence.cache_info
    if info is None or "enable_prefix_caching" not in info:
        return _result("prefix_caching", None, "the server has no vllm:cache_config_info")
    found = info["enable_prefix_caching"] == "True"
    return _result("prefix_caching", found == plan.expect.prefix_caching, f"on: {found}")


def kv_offload(plan: Plan, evidence: Serving | Evidence) -> Result:
    """KV offload runs exactly when the recipe has it.

    Only a server with a connector tells of a scheduler's host blocks: where none is planned, its
    silence is the proof. Bytes are not compared: no artifact says how large a block is.
    """
    planned = plan.expect.kv_offload_connector is not None
    blocks = _scheduler_blocks(evidence)
    if blocks is None and evidence.offload_info is None:
        return _result("kv_offload", None if planned else True, "no scheduler tells of host blocks")
    return _result("kv_offload", planned, f"{blocks} blocks of host memory")


def kv_blocks(plan: Plan, evidence: Serving | Evidence) -> Result:
    """The scheduler hands out no host block that a stage lacks, and stages have what is derived.

    Scheduler and workers size their pools apart. Where stages hold unlike layers the scheduler's
    can be the larger one, and a worker then copies beyond its own (vLLM #52921: SIGSEGV on a GPU).
    Where the recipe states the model's cache layout, each worker's own count must be the plan's.
    """
    if plan.expect.kv_offload_connector is None:
        return _result("kv_blocks", True, "no KV offload planned")
    capacity = _scheduler_blocks(evidence)
    if capacity is None:
        return _result("kv_blocks", None, "no scheduler says how many host blocks it numbers")
    workers = plan.topology.accelerators_per_node
    for rank, log in enumerate(evidence.logs):
        if len(log.host_blocks) < workers:
            seen = f"rank {rank}: {len(log.host_blocks)} of {workers} workers say their host blocks"
            return _result("kv_blocks", None, seen)
    smallest = [min(log.host_blocks) for log in evidence.logs]
    stages = ", ".join(f"rank {rank} has {blocks}" for rank, blocks in enumerate(smallest))
    seen = f"scheduler hands out {capacity} host blocks; {stages}"
    derived = plan.expect.kv_offload_blocks
    if derived is None:
        return _result("kv_blocks", capacity <= min(smallest), seen)
    wanted = [
        sorted(
            derived[worker // plan.topology.tensor_parallel]
            for worker in range(rank * workers, (rank + 1) * workers)
        )
        for rank in range(len(evidence.logs))
    ]
    agree = wanted == [sorted(log.host_blocks) for log in evidence.logs]
    seen += f"; the plan derives {derived} by stage"
    return _result("kv_blocks", agree and capacity <= min(smallest), seen)


def _scheduler_blocks(evidence: Serving | Evidence) -> int | None:
    """Host blocks that the scheduler numbers: by the server's metric, which 0.27 lacks, or its log."""
    told = (evidence.offload_info or {}).get("capacity_blocks", "")
    return int(told) if told.isdecimal() else evidence.logs[0].scheduler_blocks


def rank_logs(plan: Plan, evidence: Evidence) -> Result:
    """No rank's log tells of a GPU fault, a segmentation fault or a dead engine.

    Logs reach into the deliberate stop, and a headless rank's does not say where that began.
    So tracebacks and errors of the GPU's runtime do not count: a stop may bring them too.
    """
    silent = [str(rank) for rank, log in enumerate(evidence.logs) if not log.lines]
    if silent:
        return _result("rank_logs", None, f"nothing in the log of rank {', '.join(silent)}")
    faults = [f"rank {rank}, {log.fault}" for rank, log in enumerate(evidence.logs) if log.fault]
    lines = sum(log.lines for log in evidence.logs)
    return _result("rank_logs", not faults, "; ".join(faults) or f"no fault in {lines} lines")


def speculation(plan: Plan, evidence: Evidence) -> Result:
    """Speculation runs exactly when the recipe has it, at the acceptance length it says.

    Only a server that speculates has the counters: where none is planned, their absence is the proof.
    """
    name = "vllm:spec_decode_num_drafts_total"
    drafts = grown(evidence.before, evidence.after, name)
    if plan.expect.speculation is None:
        seen = "no counter of drafts" if drafts is None else f"{drafts:.0f} drafts"
        return _result("speculation", not drafts, seen)
    if drafts is None:
        return _result("speculation", None, f"the server has no {name}")
    if drafts <= 0:
        return _result("speculation", False, "no drafts, though the recipe speculates")
    name = "vllm:spec_decode_num_accepted_tokens_total"
    accepted = grown(evidence.before, evidence.after, name)
    if accepted is None:
        return _result("speculation", None, f"the server has no {name}")
    length = 1 + accepted / drafts
    wanted = plan.expect.acceptance_length
    good = wanted is None or abs(length - wanted) <= CONSTANTS.acceptance_margin * wanted
    return _result(
        "speculation",
        good,
        f"acceptance length {length:.3f} in {drafts:.0f} drafts, planned {wanted}",
    )


SERVING_GATES = (model_id, world_size, patches, prefix_caching, kv_offload, kv_blocks)
"""Gates that can be told as soon as the server serves: what fails them would only waste a replay."""

GATES = (
    not_cancelled,
    window,
    completed,
    errors,
    accounting,
    coverage,
    tokens,
    *SERVING_GATES,
    rank_logs,
    speculation,
)
"""All gates, in the order in which they are told."""


def judge(plan: Plan, evidence: Evidence) -> list[Result]:
    """Every gate's result."""
    return [gate(plan, evidence) for gate in GATES]


def judge_serving(plan: Plan, serving: Serving) -> list[Result]:
    """What already stands against a replay: results that are no pass, before it is begun."""
    results = [gate(plan, serving) for gate in SERVING_GATES]
    allowed = {"kv_blocks"} if plan.expect.kv_blocks_may_differ else set()
    return [result for result in results if result.outcome != "pass" and result.gate not in allowed]
