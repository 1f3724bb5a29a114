"""Whether two points are the same measurement: all identities equal, and if not, which differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve_repro.documents import read_json
from serve_repro.errors import UserError

PROVEN = ("weights", "image", "dataset", "client")
"""Identities that a file proves, each by its key `digest`; the others follow from what people wrote."""

Identities = Mapping[str, str | int | None]
"""{name: hash, or version}; None: not known yet."""


def identities_here(
    plan_digest: str, driver: int, patch_set: str, proofs: Mapping[str, Path]
) -> dict[str, str | int | None]:
    """What a point that is measured here would carry, as far as it is proven by now.

    Args:
        plan_digest: sha256 of the plan.
        driver: version of the driving code.
        patch_set: id of the patch set. Applied to the same image it gives the same overlay, so no node
            need be asked.
        proofs: {name: its file} of PROVEN, which may not be made yet.
    """
    proven = {name: _proven(proofs[name]) for name in PROVEN}
    return {"plan": f"sha256:{plan_digest}", "driver": driver, "patch_set": patch_set, **proven}


def identities_of(point: Mapping[str, Any]) -> dict[str, str | int | None]:
    """The same of a measured point, by its replay.json."""
    names = ("plan", "driver", *PROVEN)
    return {"patch_set": point["patch_set"], **{name: point["identity"][name] for name in names}}


def differences(here: Identities, there: Identities) -> list[str]:
    """Each identity that is not equal, with both values; what is not known here yet is left out."""
    return [
        f"{name}: here {_short(value)}, there {_short(there.get(name))}"
        for name, value in here.items()
        if value is not None and value != there.get(name)
    ]


def unknown(here: Identities) -> list[str]:
    """The identities that are not proven here yet."""
    return [name for name, value in here.items() if value is None]


def _proven(path: Path) -> str | None:
    try:
        return str(read_json(path)["digest"])
    except (UserError, KeyError, TypeError):  # not made yet, or about to be made anew
        return None


def _short(value: object) -> str:
    return str(value).removeprefix("sha256:")[:12]
