"""A plan as shell text: what a person would paste, with the names that a launch fills in on top."""

from __future__ import annotations

import re
import shlex

from serve_repro.command import Command
from serve_repro.plan.model import Plan

_NAME = re.compile(r"\$\{[A-Z_]+\}")
_OPTION = re.compile(r"^--?[a-zA-Z]")


def render(plan: Plan) -> str:
    """Shell text of a whole plan. Ranks are listed in the order in which they are started."""
    lines = [
        f"# {plan.recipe} at concurrency {plan.concurrency}, site {plan.site}",
        f"# {plan.topology.world_size} x {plan.topology.accelerator}, "
        f"TP{plan.topology.tensor_parallel} x PP{plan.topology.pipeline_parallel}, "
        f"{len(plan.ranks)} rank(s), {plan.runtime} on {plan.runner}, {plan.expect.validity} run",
        f"# nodes: {' '.join(plan.nodes) or 'select_nodes chooses them first'}",
    ]
    if plan.memory:
        lines.append(
            f"# KV offload: {plan.memory.kv_offload_bytes_per_rank:,} bytes a GPU rank "
            f"({plan.memory.dram_gb_per_node} GB a node)"
        )
    lines += [f"# patch: {name}" for name in plan.patches]
    lines += [f"# note: {warning}" for warning in plan.warnings]
    lines += ["", "# Filled in by the launch; set them to run this by hand:"]
    lines += [f"{name}=  # {meaning}" for name, meaning in plan.bindings.items()]
    for rank in sorted(plan.ranks, key=lambda rank: -rank.rank):
        lines += ["", f"# rank {rank.rank} ({rank.role})", *words(rank.start, rank.prefix)]
    lines += ["", "# replay client, on rank 0's node, once a completion brings tokens"]
    lines += words(plan.client.command)
    for rank in plan.ranks:
        for command in rank.cleanup:
            lines += ["", f"# clean-up of rank {rank.rank}", *words(command, rank.prefix)]
    return "\n".join(lines) + "\n"


def words(command: Command, prefix: list[str] | None = None) -> list[str]:
    """One command behind its prefix, an option with its value a line."""
    groups: list[list[str]] = [[f"{name}={quote(value)}"] for name, value in command.env.items()]
    groups.append([])
    for word in [*(prefix or []), *command.argv]:
        # `--key=value` is complete: what follows it is the next program's name, not its value.
        complete = bool(groups[-1]) and groups[-1][-1].startswith("--") and "=" in groups[-1][-1]
        if groups[-1] and (_OPTION.match(word) or complete):
            groups.append([])
        groups[-1].append(quote(word))
    texts = [" ".join(group) for group in groups if group]
    last = len(texts) - 1
    return [("  " if i else "") + text + (" \\" if i < last else "") for i, text in enumerate(texts)]


def quote(word: str) -> str:
    """Quote for a shell; ${NAME} of the plan stays a variable, `$$` becomes a plain dollar."""
    if word == "${OVERLAY_MOUNTS}":  # several words, or none
        return word
    if not _NAME.search(word):
        return shlex.quote(word.replace("$$", "$"))
    inner = re.sub(r'([\\"`])', r"\\\1", word)
    return f'"{inner}"'
