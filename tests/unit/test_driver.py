"""The declared version of the driving code rises when its numbers change."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from serve_repro.driver import CONSTANTS, VERSION

VERSIONS = Path(__file__).parent / "driver_versions.json"


def test_the_numbers_of_a_version_never_change() -> None:
    """Points are measured again when the version rises, and only then."""
    known: dict[str, str] = json.loads(VERSIONS.read_text(encoding="utf-8"))
    here = hashlib.sha256(repr(CONSTANTS).encode()).hexdigest()
    todo = (
        "the constants in scripts/serve_repro/driver.py are not those of version {version}.\n"
        "If the change can alter a measurement or its verdict: raise VERSION (all points become\n"
        "stale), and add the new version to tests/unit/driver_versions.json:\n"
        '  "{next}": "{here}"\n'
        "Never change the line of a version that anybody has measured with."
    )
    assert known.get(str(VERSION)) == here, todo.format(
        version=VERSION, next=max(map(int, known), default=0) + 1, here=here
    )


def test_versions_are_counted_without_gaps() -> None:
    known = json.loads(VERSIONS.read_text(encoding="utf-8"))
    assert [int(version) for version in known] == list(range(1, VERSION + 1))
