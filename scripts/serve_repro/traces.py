"""Made traces in the record format of the published data set: the same bytes from the same numbers.

A trace is one session tree. Each request repeats the token blocks of the one before and adds some
(an agent's growing context), so that prefixes are shared as in the real traces. Blocks are named by
`hash_ids`, which count from 0 in each trace. Some sessions hand work to a subagent with a context
of its own; the parent goes on when it has ended. `t` is seconds from the session's start.
"""

from __future__ import annotations

import random
from typing import Any

BLOCK_TOKENS = 64
MAIN_MODEL, SUB_MODEL = "main-agent", "sub-agent"
_SECONDS_A_TOKEN = 0.02
_FIRST_TOKEN_S = 0.2
_SUBAGENT_TURNS = 4


class _Session:
    """The running state of one trace: its clock and its count of blocks."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.now = 0.0
        self._blocks = 0

    def new_blocks(self, count: int) -> list[int]:
        """Fresh blocks, named by the next numbers."""
        first, self._blocks = self._blocks, self._blocks + count
        return list(range(first, self._blocks))


def make_traces(
    sessions: int,
    turns: int,
    subagent_every: int,
    shared_prefix_blocks: int,
    output_tokens: list[int],
    think_s: list[float],
    seed: int,
) -> list[dict[str, Any]]:
    """Traces, one a session, from the numbers of a recipe's `replay.dataset.made`."""
    draw = random.Random(seed)
    return [
        _trace(
            number,
            number % subagent_every == 0,
            draw,
            turns,
            shared_prefix_blocks,
            output_tokens,
            think_s,
        )
        for number in range(sessions)
    ]


def _trace(
    number: int,
    has_subagent: bool,
    draw: random.Random,
    turns: int,
    prefix: int,
    output_tokens: list[int],
    think_s: list[float],
) -> dict[str, Any]:
    session = _Session(draw)
    context = session.new_blocks(prefix)
    requests: list[dict[str, Any]] = []
    for turn in range(turns):
        context += session.new_blocks(draw.randint(3, 6))
        think = draw.choice(think_s) if turn else 0.0
        session.now += think
        output = draw.randint(*output_tokens)
        request = _request("s", MAIN_MODEL, session.now, context, output)
        request |= {"ttft": _FIRST_TOKEN_S, "think_time": think}
        requests.append(request)
        session.now += request["api_time"]
        if has_subagent and turn == turns // 2:
            requests.append(_subagent(number, session, output_tokens[0]))
    return {
        "id": f"made{number}",
        "models": [MAIN_MODEL, SUB_MODEL] if has_subagent else [MAIN_MODEL],
        "block_size": BLOCK_TOKENS,
        "hash_id_scope": "local",
        "requests": requests,
    }


def _subagent(number: int, session: _Session, output: int) -> dict[str, Any]:
    begun = session.now
    context = session.new_blocks(8)
    requests = []
    for _ in range(_SUBAGENT_TURNS):
        context += session.new_blocks(3)
        requests.append(_request("n", SUB_MODEL, session.now, context, output))
        session.now += requests[-1]["api_time"]
    return {
        "type": "subagent",
        "t": round(begun, 3),
        "agent_id": f"made{number}-sub0",
        "subagent_type": "Explore",
        "duration_ms": round((session.now - begun) * 1000),
        "total_tokens": sum(request["in"] + request["out"] for request in requests),
        "tool_use_count": _SUBAGENT_TURNS,
        "status": "completed",
        "requests": requests,
        "models": [SUB_MODEL],
    }


def _request(kind: str, model: str, now: float, context: list[int], output: int) -> dict[str, Any]:
    return {
        "type": kind,
        "t": round(now, 3),
        "model": model,
        "in": len(context) * BLOCK_TOKENS,
        "out": output,
        "hash_ids": list(context),
        "api_time": round(_FIRST_TOKEN_S + output * _SECONDS_A_TOKEN, 3),
    }
