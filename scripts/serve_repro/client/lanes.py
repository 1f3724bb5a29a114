"""How many of the client's lanes were alive through the window.

A lane replays one session tree after another. No artifact names lanes, but each request names its
tree, and as many trees as there are lanes must be alive at any time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from serve_repro.client.artifacts import Record

NS = 1_000_000_000


class Span(NamedTuple):
    """One request, from its start to its end, in ns."""

    start: int
    end: int


class Spans(Iterable[Span]):
    """Many requests, eight bytes a number."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, start: int, end: int) -> None:
        """Append one."""
        self._numbers.append(start)
        self._numbers.append(end)

    def __iter__(self) -> Iterator[Span]:
        numbers = iter(self._numbers)
        return map(Span, numbers, numbers)


class Sessions(NamedTuple):
    """When each session tree had requests under way."""

    start: int | None
    """Start of the window's first request, in ns; None if there was none."""
    trees: Mapping[str, Iterable[Span]]
    """By tree, the warm-up's requests included."""


class Lanes(NamedTuple):
    """How the lanes were filled."""

    mean_alive: float
    """Time average of lanes that were alive, of the window."""
    all_alive: float
    """Share of the window in which all were, 0 to 1."""


def sessions(found: Iterable[Record]) -> Sessions:
    """When the trees of one replay had requests under way."""
    trees: dict[str, Spans] = {}
    first: int | None = None
    for record in found:
        if record.profiled:
            first = record.start_ns if first is None else min(first, record.start_ns)
        if record.tree is not None:
            trees.setdefault(record.tree, Spans()).add(record.start_ns, record.end_ns)
    return Sessions(first, trees)


def lanes_alive(found: Sessions, lanes: int, window_s: float, gap_s: float, margin_s: float) -> Lanes:
    """How many of the lanes were alive.

    A tree is alive from its first request to its last one's end, and `margin_s` longer, which a lane
    may take to begin its next tree. A silence of more than `gap_s` + `margin_s` is not life, nor is
    what would follow a last request that was shorter ago than that at the window's end, death.

    Args:
        found: spans of all trees; there must be a request in the window.
        lanes: how many there should be.
        window_s: planned length of the window.
        gap_s: longest silence of a lane that is alive.
        margin_s: the client's own reaction.
    """
    assert found.start is not None
    begin = found.start
    end = begin + round(window_s * NS)
    limit, margin = round((gap_s + margin_s) * NS), round(margin_s * NS)
    steps: list[tuple[int, int]] = []
    for spans in found.trees.values():
        for start, stop in _life(sorted(spans), begin, end, limit, margin):
            steps += [(start, 1), (stop, -1)]
    steps.sort()
    now, alive, filled, full = begin, 0, 0, 0
    for moment, change in [*steps, (end, 0)]:
        lasted = moment - now
        filled += min(alive, lanes) * lasted
        full += lasted if alive >= lanes else 0
        now, alive = moment, alive + change
    return Lanes(mean_alive=filled / (end - begin), all_alive=full / (end - begin))


def _life(spans: list[Span], begin: int, end: int, limit: int, margin: int) -> list[tuple[int, int]]:
    """Stretches of the window in which a tree was alive."""
    stretches: list[tuple[int, int]] = []
    since, until = spans[0].start, spans[0].end
    for span in spans[1:]:
        # What lies before the window is no silence: the warm-up ends together for all lanes.
        if span.start - max(until, begin) > limit:
            stretches.append((since, until + margin))
            since = span.start
        until = max(until, span.end)
    silent_to_the_end = end - max(until, begin) <= limit
    stretches.append((since, end if silent_to_the_end else until + margin))
    inside = [(max(since, begin), min(until, end)) for since, until in stretches]
    return [(since, until) for since, until in inside if since < until]
