"""The records of one replay in memory: read from their file once, for all who look at them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator

from serve_repro.client.artifacts import Record

_TOKENS = ("input_tokens", "output_tokens")
_LATENCIES = ("ttft_ms", "itl_ms", "e2e_ms")
_OTHERS = ("length_off_pct", "full_itl_ms")
_NUMBERS = (*_TOKENS, *_LATENCIES, *_OTHERS)
"""Fields that may be None; kept as NaN then. In the order of `Record`."""


class Kept(Iterable[Record]):
    """Some 90 bytes a record (a line of the file has 3,000 and more), whatever is read of it."""

    def __init__(self, found: Iterable[Record]) -> None:
        self._profiled, self._subagent = bytearray(), bytearray()
        self._starts, self._ends = array("q"), array("q")
        self._numbers = {name: array("d") for name in _NUMBERS}
        self._errors, self._trees = _Words(), _Words()
        for record in found:
            self._profiled.append(record.profiled)
            self._subagent.append(record.subagent)
            self._starts.append(record.start_ns)
            self._ends.append(record.end_ns)
            self._errors.add(record.error)
            self._trees.add(record.tree)
            for name, column in self._numbers.items():
                value = getattr(record, name)
                column.append(math.nan if value is None else value)

    def __iter__(self) -> Iterator[Record]:
        return map(
            Record,
            map(bool, self._profiled),
            self._errors,
            self._starts,
            self._ends,
            *(map(_whole, self._numbers[name]) for name in _TOKENS),
            *(map(_told, self._numbers[name]) for name in _LATENCIES),
            self._trees,
            map(bool, self._subagent),
            *(map(_told, self._numbers[name]) for name in _OTHERS),
        )


class _Words(Iterable[str | None]):
    """A column of words of which many are the same."""

    def __init__(self) -> None:
        self._places: dict[str | None, int] = {}
        self._column = array("l")

    def add(self, word: str | None) -> None:
        self._column.append(self._places.setdefault(word, len(self._places)))

    def __iter__(self) -> Iterator[str | None]:
        words = list(self._places)
        return (words[place] for place in self._column)


def _told(value: float) -> float | None:
    return None if math.isnan(value) else value


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else int(value)
