"""One function a gate: (plan, evidence) -> pass, fail or unknown, with what was seen.

What a gate cannot see is unknown, and unknown is not a pass.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from serve_repro.client.server_metrics import grown
from serve_repro.driver import CONSTANTS
from serve_repro.gates.evidence import Evidence
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
    """Errors per completed request stay within the recipe's limit; warm-up has none."""
    total = evidence.totals
    ratio = total.failed / max(total.completed, 1)
    good = ratio <= plan.expect.max_error_ratio and total.warmup_failed == 0
    return _result(
        "errors",
        good,
        f"{total.failed} failed of {total.completed + total.failed} "
        f"(limit {plan.expect.max_error_ratio:g} per completed), {total.warmup_failed} of "
        f"{total.warmup} in warm-up, kinds {total.errors}",
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


def model_id(plan: Plan, evidence: Evidence) -> Result:
    """The server that was measured offers the recipe's model at the recipe's length."""
    found = (evidence.model.get("id"), evidence.model.get("max_model_len"))
    wanted = (plan.expect.served_name, plan.expect.max_model_len)
    return _result("model_id", found == wanted, f"serves {found[0]}, max_model_len {found[1]}")


def world_size(plan: Plan, evidence: Evidence) -> Result:
    """As many workers met as the per-GPU figures are divided by."""
    wanted = plan.topology.world_size
    if not evidence.workers:
        return _result("world_size", None, "no worker says its rank in any log")
    good = evidence.workers == {(rank, wanted) for rank in range(wanted)}
    seen = sorted(evidence.workers)
    return _result("world_size", good, f"workers (rank, world size) {seen}, planned {wanted}")


def patches(plan: Plan, evidence: Evidence) -> Result:
    """Every rank's workers say that they run with every patch of the recipe."""
    told = missing(evidence.attestations, evidence.hooks, plan.topology.accelerators_per_node)
    unknown = set(plan.patches) - {hook["id"] for hook in evidence.hooks}
    told += [f"{name} is not in the built patch set" for name in sorted(unknown)]
    lines = sum(len(lines) for lines in evidence.attestations)
    return _result("patches", not told, "; ".join(told) or f"{lines} attestations, all installed")


def prefix_caching(plan: Plan, evidence: Evidence) -> Result:
    """Prefix caching is on or off as planned."""
    info = evidence.cache_info
    if info is None or "enable_prefix_caching" not in info:
        return _result("prefix_caching", None, "the server has no vllm:cache_config_info")
    found = info["enable_prefix_caching"] == "True"
    return _result("prefix_caching", found == plan.expect.prefix_caching, f"on: {found}")


def kv_offload(plan: Plan, evidence: Evidence) -> Result:
    """KV offload runs exactly when the recipe has it."""
    planned = plan.expect.kv_offload_connector is not None
    info = evidence.offload_info
    if planned and info is None:
        return _result("kv_offload", None, "no offload metrics, though the recipe offloads")
    seen = f"{info['capacity_blocks']} blocks of host memory" if info else "no offload metrics"
    return _result("kv_offload", (info is not None) == planned, seen)


def kv_blocks(plan: Plan, evidence: Evidence) -> Result:
    """The scheduler numbers no more offload blocks than every worker of every stage has.

    A number beyond a stage's memory is not checked when a block is copied (vLLM #52921).
    """
    if plan.expect.kv_offload_connector is None:
        return _result("kv_blocks", True, "no offload planned")
    workers = evidence.host_blocks
    told = "; ".join(f"rank {rank}: {counts or 'nothing'}" for rank, counts in enumerate(workers))
    said = sum(len(counts) for counts in workers)
    if said != plan.topology.world_size:
        wanted = plan.topology.world_size
        return _result("kv_blocks", None, f"{said} of {wanted} workers say their blocks: {told}")
    if evidence.offload_info is None:
        return _result("kv_blocks", None, "the scheduler does not say how many blocks it numbers")
    scheduler = int(evidence.offload_info["capacity_blocks"])
    smallest = min(min(counts) for counts in workers if counts)
    return _result("kv_blocks", scheduler <= smallest, f"scheduler {scheduler}, workers {told}")


def speculation(plan: Plan, evidence: Evidence) -> Result:
    """Speculation runs exactly when the recipe has it, at the acceptance length it says.

    vLLM has these counters only when it speculates, so without a plan to, their absence is right.
    """
    drafts = grown(evidence.before, evidence.after, "vllm:spec_decode_num_drafts_total")
    if plan.expect.speculation is None:
        return _result("speculation", not drafts, f"{drafts or 0:.0f} drafts")
    accepted = grown(evidence.before, evidence.after, "vllm:spec_decode_num_accepted_tokens_total")
    if drafts is None or accepted is None:
        return _result("speculation", None, "no counters of drafts, though the recipe speculates")
    if not drafts:
        return _result("speculation", False, "no drafts, though the recipe speculates")
    length = 1 + accepted / drafts
    wanted = plan.expect.acceptance_length
    good = wanted is None or abs(length - wanted) <= CONSTANTS.acceptance_margin * wanted
    return _result(
        "speculation",
        good,
        f"acceptance length {length:.3f} in {drafts:.0f} drafts, planned {wanted}",
    )


GATES = (
    not_cancelled,
    window,
    completed,
    errors,
    tokens,
    model_id,
    world_size,
    patches,
    prefix_caching,
    kv_offload,
    kv_blocks,
    speculation,
)
"""All gates, in the order in which they are told."""


def judge(plan: Plan, evidence: Evidence) -> list[Result]:
    """Every gate's result."""
    return [gate(plan, evidence) for gate in GATES]
