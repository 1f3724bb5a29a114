"""Gates on the load: whether the client sent, and got back, what the recipe asks for."""

from __future__ import annotations

from serve_repro.client.lanes import lanes_alive
from serve_repro.client.phases import Phase
from serve_repro.driver import CONSTANTS
from serve_repro.gates.evidence import Evidence
from serve_repro.gates.result import Result, result
from serve_repro.plan.model import Plan


def warmup(plan: Plan, evidence: Evidence) -> Result:
    """No request of the warm-up failed, brought no token or was given up, subagents' included.

    The client itself stops only for a root's: after another failure a lane starts with less in the
    server's cache than the recipe says.
    """
    total = evidence.totals
    phase = evidence.phases.get("warmup", Phase())
    if phase.cancelled is None:
        return result("warmup", None, "the client's log does not tell the end of a warm-up")
    good = not (total.warmup_failed or total.warmup_no_output or phase.cancelled)
    return result(
        "warmup",
        good,
        f"{total.warmup_failed} of {total.warmup} failed ({total.warmup_subagents_failed} of "
        f"subagents), "
        f"{total.warmup_no_output} without a token, {phase.cancelled} given up",
    )


def output_length(plan: Plan, evidence: Evidence) -> Result:
    """Every answer has as many tokens as were asked for."""
    total = evidence.totals
    if not total.length_told:
        return result("output_length", None, "the client compares no answer's length with the request")
    seen = f"{total.length_off} of {total.length_told} answers have another length than was asked for"
    return result("output_length", total.length_off == 0, seen)


def dropped(plan: Plan, evidence: Evidence) -> Result:
    """Hardly any request was given up at the end of the drain: such requests stand in no record."""
    phase = evidence.phases.get("profiling", Phase())
    if phase.completed is None or phase.cancelled is None:
        return result("dropped", None, "the client's log does not tell the window's end")
    sent = phase.completed + phase.cancelled
    return result(
        "dropped",
        phase.cancelled <= CONSTANTS.dropped_share * sent,
        f"{phase.cancelled} of {sent} requests given up at the end "
        f"(limit {CONSTANTS.dropped_share:.0%})",
    )


def lanes(plan: Plan, evidence: Evidence) -> Result:
    """All lanes were alive through the window: the load was the concurrency that the row names."""
    if evidence.sessions.start is None or not evidence.sessions.trees:
        return result("lanes", None, "no request of the window names its session tree")
    found = lanes_alive(
        evidence.sessions,
        plan.concurrency,
        plan.client.duration_s,
        plan.client.lane_gap_s,
        CONSTANTS.coverage_margin_s,
    )
    return result(
        "lanes",
        found.all_alive >= CONSTANTS.lanes_share,
        f"{found.mean_alive:.2f} of {plan.concurrency} lanes alive on average, all in "
        f"{found.all_alive:.1%} of the window (at least {CONSTANTS.lanes_share:.0%}); "
        f"alive: no silence over {plan.client.lane_gap_s + CONSTANTS.coverage_margin_s:g} s",
    )


def server_metrics(plan: Plan, evidence: Evidence) -> Result:
    """The server's metrics were there all through the window, and after it."""
    if evidence.unsampled_s is None:
        return result("server_metrics", None, "the client got no metrics from the server")
    after = "" if evidence.after else "; none after the replay"
    return result(
        "server_metrics",
        evidence.unsampled_s <= CONSTANTS.unsampled_s and bool(evidence.after),
        f"longest time without metrics {evidence.unsampled_s:.1f} s "
        f"(limit {CONSTANTS.unsampled_s:g} s){after}",
    )
