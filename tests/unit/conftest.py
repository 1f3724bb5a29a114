"""What several unit tests start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .processes import new_run_id, nothing_left


@pytest.fixture
def run_id() -> Iterator[str]:
    """A mark of its own, whose processes are all gone after the test."""
    mark = new_run_id()
    with nothing_left(mark):
        yield mark
