"""The K3 plan against what the publication starts: equal, but for differences that are written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_repro.plan.model import Plan

from . import published_launch as published
from .plans import plan_of

BASE = Path(__file__).parents[2]
K3 = "kimik3-fp4-mi355x-vllm-agentic-tp8pp2"


class Started:
    """One rank's command, taken apart."""

    def __init__(self, plan: Plan, rank: int) -> None:
        words = plan.ranks[rank].start.argv
        image = next(i for i, word in enumerate(words) if "@${IMAGE_DIGEST}" in word)
        self.options: dict[str, list[str]] = {}
        for word in words[2:image]:
            if word.startswith("--"):
                last = self.options.setdefault(word, [])
            elif word != "${OVERLAY_MOUNTS}":
                last.append(word)
        parts = [
            dict(part.split("=", 1) for part in mount.split(",") if "=" in part)
            | {"mode": "ro" if mount.endswith(",readonly") else "rw"}
            for mount in self.options.pop("--mount")
        ]
        self.mounts = {part["target"]: part["mode"] for part in parts}
        self.env = dict(pair.split("=", 1) for pair in self.options.pop("--env"))
        serve = words.index("serve", image)
        assert words[image + 1 : serve] == ["-c", 'exec "$$@"', "bash", "vllm"]
        assert words[serve + 1] == "/model${WEIGHTS_PATH}"
        self.flags: dict[str, object] = {}
        for word in words[serve + 2 :]:
            if word.startswith("--"):
                name = word.removeprefix("--")
                self.flags[name] = True
            else:
                self.flags[name] = published.plain(word)


@pytest.fixture(params=[0, 1])
def rank(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def differing(ours: dict[str, object], theirs: dict[str, object]) -> set[str]:
    """Names of what differs; a value that only a launch knows equals any name of the plan."""
    names = set()
    for name in ours.keys() | theirs.keys():
        mine, other = ours.get(name), theirs.get(name)
        if isinstance(mine, dict) and isinstance(other, dict):
            if differing(mine, other):
                names.add(name)
        elif other == published.LAUNCH or other == [published.LAUNCH]:
            if mine is None:
                names.add(name)
        elif mine != other:
            names.add(name)
    return names


def test_both_ranks_differ_from_the_publication_only_as_written_down(rank: int) -> None:
    """Per option, mount, variable and flag; what is listed and does not differ would be a lie too."""
    started = Started(plan_of(K3, "mi355x-amds", 4), rank)
    found = differing(dict(started.options), dict(published.OPTIONS))
    found |= {f"mount {name}" for name in differing(dict(started.mounts), dict(published.MOUNTS))}
    found |= differing(dict(started.env), dict(published.ENVIRONMENT))
    found |= differing(dict(started.flags), published.FLAGS | published.OF_RANK[rank])
    assert found == set(published.DIFFERENCES) - ({"port"} if rank else set())


def test_each_difference_has_its_row_with_a_reason() -> None:
    text = (BASE / "docs/differences.md").read_text(encoding="utf-8")
    rows = {line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line[:2] == "| "}
    assert set(published.DIFFERENCES.values()) <= rows
