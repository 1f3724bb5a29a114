"""One function a gate: (plan, evidence) -> pass, fail or unknown, with what was seen.

What a gate cannot see is unknown, and unknown is not a pass.
"""

from __future__ import annotations

from serve_repro.client.server_metrics import grown
from serve_repro.driver import CONSTANTS
from serve_repro.gates.evidence import Evidence, Serving
from serve_repro.gates.load import dropped, lanes, output_length, server_metrics, warmup
from serve_repro.gates.result import Result, result
from serve_repro.gates.server import (
    allocation,
    async_scheduling,
    clock_skew,
    metrics_model,
    world_size,
)
from serve_repro.patches.attestation import missing
from serve_repro.plan.model import Plan

DRAFTS = "vllm:spec_decode_num_drafts_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
GIB = 1 << 30


def not_cancelled(plan: Plan, evidence: Evidence) -> Result:
    """The client finished its window by itself."""
    cancelled = evidence.aggregate.get("was_cancelled")
    return result(
        "not_cancelled", None if cancelled is None else not cancelled, f"was_cancelled {cancelled}"
    )


def window(plan: Plan, evidence: Evidence) -> Result:
    """The measured window is as long as planned, less one idle gap at its end at most."""
    duration = (evidence.aggregate.get("benchmark_duration") or {}).get("avg")
    if duration is None:
        return result("window", None, "no benchmark_duration in the client's aggregate")
    good = duration >= plan.client.duration_s - plan.client.idle_gap_s
    return result("window", good, f"{duration:.1f} s of {plan.client.duration_s} s")


def completed(plan: Plan, evidence: Evidence) -> Result:
    """Requests were answered, and each answer brought tokens."""
    total = evidence.totals
    good = total.completed > 0 and total.no_output == 0
    return result(
        "completed", good, f"{total.completed} completed, {total.no_output} of them without a token"
    )


def errors(plan: Plan, evidence: Evidence) -> Result:
    """Errors per completed request stay within the recipe's limit.

    An answer without a token is an error here, whatever the client calls it.
    """
    total = evidence.totals
    failed = total.failed + total.no_output
    ratio = failed / max(total.completed - total.no_output, 1)
    return result(
        "errors",
        ratio <= plan.expect.max_error_ratio,
        f"{failed} failed of {total.completed + total.failed} "
        f"(limit {plan.expect.max_error_ratio:g} per completed), kinds {total.errors}, "
        f"{total.no_output} without a token",
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
        return result("accounting", None, "no request_count in the client's aggregate")
    failed = count("error_request_count") or 0  # the client exports it only if there was an error
    total = evidence.totals
    return result(
        "accounting",
        (completed, failed) == (total.completed, total.failed),
        f"client counts {completed:.0f} answers and {failed:.0f} errors, "
        f"its records have {total.completed} and {total.failed}",
    )


def coverage(plan: Plan, evidence: Evidence) -> Result:
    """Requests were under way all through the window, but for the idle gaps that the client allows.

    This sees a load that stood still; `lanes` sees one of several lanes that did.
    """
    found = evidence.activity
    if found is None:
        return result("coverage", None, "no request was recorded in the window")
    limit = plan.client.idle_gap_s + CONSTANTS.coverage_margin_s
    return result(
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
            return result("tokens", None, f"the server has no vllm:{name}_tokens_total")
        told.append(f"{name}: server {server:.0f}, client {client}")
        good = good and client > 0 and abs(server - client) <= CONSTANTS.token_margin * client
    return result("tokens", good, "; ".join(told))


def model_id(plan: Plan, evidence: Serving | Evidence) -> Result:
    """The server that was measured offers the recipe's model at the recipe's length."""
    found = (evidence.model.get("id"), evidence.model.get("max_model_len"))
    wanted = (plan.expect.served_name, plan.expect.max_model_len)
    return result("model_id", found == wanted, f"serves {found[0]}, max_model_len {found[1]}")


def patches(plan: Plan, evidence: Serving | Evidence) -> Result:
    """Every rank's workers say that they run with every patch of the recipe."""
    told = missing(evidence.attestations, evidence.hooks, plan.topology.accelerators_per_node)
    unknown = set(plan.patches) - {hook["id"] for hook in evidence.hooks}
    told += [f"{name} is not in the built patch set" for name in sorted(unknown)]
    lines = sum(len(lines) for lines in evidence.attestations)
    return result("patches", not told, "; ".join(told) or f"{lines} attestations, all installed")


def prefix_caching(plan: Plan, evidence: Serving | Evidence) -> Result:
    """Prefix caching is on or off as planned."""
    info = evidence.cache_info
    if info is None or "enable_prefix_caching" not in info:
        return result("prefix_caching", None, "the server has no vllm:cache_config_info")
    found = info["enable_prefix_caching"] == "True"
    return result("prefix_caching", found == plan.expect.prefix_caching, f"on: {found}")


def kv_offload(plan: Plan, evidence: Serving | Evidence) -> Result:
    """KV offload runs exactly when the recipe has it, in as much host memory as it says.

    Only a server with a connector has the metric: where none is planned, its absence is the proof.
    Workers tell their memory in GiB to two decimals, and leave less than a block of it unused.
    """
    planned = plan.expect.kv_offload_bytes_per_rank
    capacity = _capacity(evidence)
    if plan.expect.kv_offload_connector is None or planned is None:
        seen = "no KV offload" if capacity is None else f"{capacity} blocks of host memory, none planned"
        return result("kv_offload", capacity is None, seen)
    if capacity is None:
        return result("kv_offload", None, "neither the server's metrics nor its log tell of KV offload")
    told, wanted = [gib for log in evidence.logs for gib in log.host_gib], planned / GIB
    if not told:
        return result("kv_offload", None, f"{capacity} blocks of host memory, of unknown size")
    most = max(blocks for log in evidence.logs for blocks in log.host_blocks)
    good = all(wanted * (1 - 1 / max(most, 1)) - 0.005 <= gib <= wanted + 0.005 for gib in told)
    sizes = ", ".join(f"{gib:.2f}" for gib in sorted(set(told)))
    seen = f"{capacity} blocks of host memory; workers say {sizes} GiB, planned {wanted:.3f}"
    return result("kv_offload", good, seen)


def _capacity(evidence: Serving | Evidence) -> int | None:
    """Host blocks of the scheduler, from its metric or, in versions without it, from rank 0's log."""
    told = (evidence.offload_info or {}).get("capacity_blocks", "")
    return int(told) if told.isdecimal() else evidence.logs[0].scheduler_blocks


def kv_blocks(plan: Plan, evidence: Serving | Evidence) -> Result:
    """The scheduler hands out no host block that a stage lacks, and stages have what is derived.

    Scheduler and workers size their pools apart. Where stages hold unlike layers the scheduler's
    can be the larger one, and a worker then copies beyond its own (vLLM #52921: SIGSEGV on a GPU).
    Where the recipe states the model's cache layout, each worker's own count must be the plan's.
    """
    if plan.expect.kv_offload_connector is None:
        return result("kv_blocks", True, "no KV offload planned")
    capacity = _capacity(evidence)
    if capacity is None:
        return result("kv_blocks", None, "the server does not say its scheduler's capacity_blocks")
    workers = plan.topology.accelerators_per_node
    for rank, log in enumerate(evidence.logs):
        if len(log.host_blocks) < workers:
            seen = f"rank {rank}: {len(log.host_blocks)} of {workers} workers say their host blocks"
            return result("kv_blocks", None, seen)
    smallest = [min(log.host_blocks) for log in evidence.logs]
    stages = ", ".join(f"rank {rank} has {blocks}" for rank, blocks in enumerate(smallest))
    seen = f"scheduler hands out {capacity} host blocks; {stages}"
    derived = plan.expect.kv_offload_blocks
    if derived is None:
        return result("kv_blocks", capacity <= min(smallest), seen)
    wanted = [
        sorted(
            derived[worker // plan.topology.tensor_parallel]
            for worker in range(rank * workers, (rank + 1) * workers)
        )
        for rank in range(len(evidence.logs))
    ]
    agree = wanted == [sorted(log.host_blocks) for log in evidence.logs]
    seen += f"; the plan derives {derived} by stage"
    return result("kv_blocks", agree and capacity <= min(smallest), seen)


def rank_logs(plan: Plan, evidence: Serving | Evidence) -> Result:
    """No rank's log tells of a GPU fault, a segmentation fault or a dead engine.

    Logs reach into the deliberate stop, and a headless rank's does not say where that began.
    So tracebacks and errors of the GPU's runtime do not count: a stop may bring them too.
    """
    silent = [str(rank) for rank, log in enumerate(evidence.logs) if not log.lines]
    if silent:
        return result("rank_logs", None, f"nothing in the log of rank {', '.join(silent)}")
    faults = [f"rank {rank}, {log.fault}" for rank, log in enumerate(evidence.logs) if log.fault]
    lines = sum(log.lines for log in evidence.logs)
    return result("rank_logs", not faults, "; ".join(faults) or f"no fault in {lines} lines")


def speculation(plan: Plan, evidence: Serving | Evidence) -> Result:
    """The server can speculate exactly when the recipe does.

    Only a server that speculates has the counters: where none is planned, their absence is the proof.
    """
    drafts = evidence.counters.get(DRAFTS)
    if plan.expect.speculation is None:
        seen = "no counter of drafts" if drafts is None else f"{drafts:.0f} drafts"
        return result("speculation", not drafts, seen)
    if drafts is None:
        return result("speculation", None, f"the server has no {DRAFTS}")
    return result("speculation", True, f"the server counts drafts ({drafts:.0f})")


def acceptance(plan: Plan, evidence: Evidence) -> Result:
    """The replay was drafted, at the acceptance length that the recipe says."""
    if plan.expect.speculation is None:
        return result("acceptance", True, "no speculation planned")
    drafts, accepted = (grown(evidence.before, evidence.after, name) for name in (DRAFTS, ACCEPTED))
    if drafts is None or accepted is None:
        lost = DRAFTS if drafts is None else ACCEPTED
        return result("acceptance", None, f"the server has no {lost}")
    if drafts <= 0:
        return result("acceptance", False, "no drafts, though the recipe speculates")
    length = 1 + accepted / drafts
    wanted = plan.expect.acceptance_length
    good = wanted is None or abs(length - wanted) <= CONSTANTS.acceptance_margin * wanted
    seen = f"acceptance length {length:.3f} in {drafts:.0f} drafts, planned {wanted}"
    return result("acceptance", good, seen)


SERVING_GATES = (
    model_id,
    metrics_model,
    world_size,
    patches,
    prefix_caching,
    async_scheduling,
    kv_offload,
    kv_blocks,
    speculation,
)
"""Gates that can be told as soon as the server serves: what fails them would only waste a replay."""

GATES = (
    not_cancelled,
    window,
    completed,
    errors,
    warmup,
    accounting,
    dropped,
    output_length,
    coverage,
    lanes,
    tokens,
    server_metrics,
    *SERVING_GATES,
    allocation,
    clock_skew,
    rank_logs,
    acceptance,
)
"""All gates, in the order in which they are told."""


def judge(plan: Plan, evidence: Evidence) -> list[Result]:
    """Every gate's result."""
    return [gate(plan, evidence) for gate in GATES]


def judge_serving(plan: Plan, serving: Serving) -> list[Result]:
    """What already stands against a replay: results that are no pass, before it is begun."""
    results = [gate(plan, serving) for gate in SERVING_GATES]
    allowed = {"kv_blocks"} if plan.expect.kv_blocks_may_differ else set()
    return [found for found in results if found.outcome != "pass" and found.gate not in allowed]
