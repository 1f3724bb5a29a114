"""A real registry for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import Registry, require_programs


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry of the test's own, gone after it."""
    require_programs()
    started = Registry(tmp_path)
    try:
        started.wait()
        yield started
    finally:
        started.stop()
