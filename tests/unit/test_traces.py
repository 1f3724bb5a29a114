"""Made traces: the same from the same numbers, shaped like the published ones, fit for the client."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_repro.traces import BLOCK_TOKENS, MAIN_MODEL, SUB_MODEL, make_traces

BASE = Path(__file__).parents[2]
NUMBERS: dict[str, Any] = {
    "sessions": 6,
    "turns": 8,
    "subagent_every": 3,
    "shared_prefix_blocks": 20,
    "output_tokens": [20, 60],
    "think_s": [0.3, 0.6, 1.0],
    "seed": 1,
}


@pytest.fixture(scope="module")
def traces() -> list[dict[str, Any]]:
    return make_traces(**NUMBERS)


def chains(trace: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Each agent's own requests, in order: the main agent's, then each subagent's."""
    yield [request for request in trace["requests"] if request["type"] != "subagent"]
    for request in trace["requests"]:
        if request["type"] == "subagent":
            yield request["requests"]


def test_the_same_numbers_make_the_same_traces(traces: list[dict[str, Any]]) -> None:
    assert make_traces(**NUMBERS) == traces


def test_another_seed_makes_other_traces(traces: list[dict[str, Any]]) -> None:
    assert make_traces(**NUMBERS | {"seed": 2}) != traces


def test_there_are_as_many_sessions_and_turns_as_asked_for(traces: list[dict[str, Any]]) -> None:
    assert [trace["id"] for trace in traces] == [f"made{number}" for number in range(6)]
    assert {len(next(chains(trace))) for trace in traces} == {8}


def test_every_third_session_has_a_subagent(traces: list[dict[str, Any]]) -> None:
    having = [len(list(chains(trace))) == 2 for trace in traces]
    assert having == [True, False, False, True, False, False]
    for trace, has_subagent in zip(traces, having, strict=True):
        assert trace["models"] == ([MAIN_MODEL, SUB_MODEL] if has_subagent else [MAIN_MODEL])


def test_each_turn_repeats_the_blocks_of_the_one_before_and_adds_some(
    traces: list[dict[str, Any]],
) -> None:
    for trace in traces:
        for chain in chains(trace):
            for earlier, later in itertools.pairwise(chain):
                known = len(earlier["hash_ids"])
                assert later["hash_ids"][:known] == earlier["hash_ids"]
                assert len(later["hash_ids"]) > known


def test_sessions_start_with_the_shared_prefix(traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        assert trace["requests"][0]["hash_ids"][:20] == list(range(20))


def test_a_subagent_shares_no_block_with_its_parent(traces: list[dict[str, Any]]) -> None:
    main, sub = chains(traces[0])
    assert not set(main[-1]["hash_ids"]) & set(sub[-1]["hash_ids"])


def test_input_tokens_are_whole_blocks(traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        assert trace["block_size"] == BLOCK_TOKENS == 64
        for request in itertools.chain(*chains(trace)):
            assert request["in"] == 64 * len(request["hash_ids"])
            assert len(set(request["hash_ids"])) == len(request["hash_ids"])


def test_output_tokens_and_think_times_are_of_the_asked_ones(traces: list[dict[str, Any]]) -> None:
    main = [request for trace in traces for request in next(chains(trace))]
    assert all(20 <= request["out"] <= 60 for request in main)
    assert {request["think_time"] for request in main} == {0.0, 0.3, 0.6, 1.0}


def test_times_rise_and_leave_room_for_the_answers(traces: list[dict[str, Any]]) -> None:
    for trace in traces:
        assert trace["requests"][0]["t"] == 0
        for chain in chains(trace):
            for earlier, later in itertools.pairwise(chain):
                gap = later["t"] - earlier["t"] - earlier["api_time"]
                assert gap >= later.get("think_time", 0) - 0.002


def test_the_parent_goes_on_when_its_subagent_has_ended(traces: list[dict[str, Any]]) -> None:
    requests = traces[0]["requests"]
    place = [request["type"] for request in requests].index("subagent")
    sub, after = requests[place], requests[place + 1]
    last = sub["requests"][-1]
    ended = sub["t"] + sub["duration_ms"] / 1000
    assert ended == pytest.approx(last["t"] + last["api_time"], abs=0.002)
    assert after["t"] >= ended - 0.002
    assert sub["total_tokens"] == sum(request["in"] + request["out"] for request in sub["requests"])


def test_records_have_the_fields_of_the_published_format(traces: list[dict[str, Any]]) -> None:
    common = {"type", "t", "model", "in", "out", "hash_ids", "api_time"}
    assert set(traces[0]) == {"id", "models", "block_size", "hash_id_scope", "requests"}
    assert traces[0]["hash_id_scope"] == "local"
    main, sub = chains(traces[0])
    assert {frozenset(request) for request in main} == {frozenset(common | {"ttft", "think_time"})}
    assert {frozenset(request) for request in sub} == {frozenset(common)}
    assert ({r["type"] for r in main}, {r["type"] for r in sub}) == ({"s"}, {"n"})


def test_they_survive_json(traces: list[dict[str, Any]]) -> None:
    assert json.loads(json.dumps(traces)) == traces
