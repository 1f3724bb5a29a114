"""The record of one summary as an RO-Crate: which run made which file from which others.

Each point is a CreateAction whose objects are its plan and proofs and whose results are its
artifacts; one more made the tables, pictures and the page from the points. See the Process Run
Crate profile, https://w3id.org/ro/wfrun/process/0.5.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rocrate.model.contextentity import ContextEntity
from rocrate.model.file import File
from rocrate.rocrate import ROCrate

from serve_repro.documents import read_json
from serve_repro.provenance.digest import sha256_without
from serve_repro.result_paths import run_of

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
REPOSITORY = "#serve-repro"
NAME = "ro-crate-metadata.json"
COPIES = "provenance/inputs"
"""Where files from outside the results folder are copied to."""


class Point(NamedTuple):
    """One valid point and what it stands on."""

    replay: Path
    outside: list[Path]
    """Its inputs that lie outside the results folder: settings, traces' manifest, environments."""


def write_crate(
    results: Path, points: list[Point], made: list[Path], secrets: Mapping[str, bytes], licence: str
) -> ROCrate:
    """Write ro-crate-metadata.json into the results folder; small files from outside are copied there.

    Args:
        results: the results folder, root of the crate.
        points: the points of the summary.
        made: tables, pictures and the page.
        secrets: {variable: value} that must stand in no file.
        licence: address of the licence of the numbers.

    Raises:
        UserError: a file holds a secret.
    """
    crate = ROCrate()
    crate.name = "LLM-serving benchmark points with their evidence"
    crate.description = "Points measured by serve-repro; each can be traced to every file that made it."
    crate.license = licence
    started = [read_json(point.replay)["started"] for point in points]
    # The newest point's time, not the clock's: the same results give the same record.
    crate.root_dataset["datePublished"] = max(started)
    crate.root_dataset["conformsTo"] = crate.add(
        ContextEntity(crate, PROFILE, {"@type": "CreativeWork", "name": "Process Run Crate"})
    )
    listed = _Listed(crate, results, secrets)
    actions = [_measured(crate, listed, point) for point in points]
    results_of_points = [listed.file(point.replay) for point in points]
    actions.append(
        _action(
            crate,
            "#summarise",
            name="Compute the summary, verdict, pictures and page from the points",
            instrument=_workflow(crate, None),
            objects=results_of_points,
            results=[listed.file(path) for path in made],
        )
    )
    crate.root_dataset["mentions"] = actions
    crate.metadata.write(results)
    return crate


class _Listed:
    """Files of the crate, each once."""

    def __init__(self, crate: ROCrate, results: Path, secrets: Mapping[str, bytes]) -> None:
        self._crate, self._results, self._secrets = crate, results, secrets
        self._files: dict[str, File] = {}

    def file(self, path: Path) -> File:
        """A file as an entity with its sha256; one from outside is copied in first."""
        root = self._results.resolve()
        inside = path.resolve().is_relative_to(root)
        place = path.resolve().relative_to(root) if inside else Path(COPIES) / path
        if str(place) not in self._files:
            if not inside:
                copy = self._results / place
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            properties = {
                "name": place.name,
                "contentSize": str(path.stat().st_size),
                "sha256": sha256_without(path, self._secrets),
            }
            self._files[str(place)] = self._crate.add_file(
                self._results / place, str(place), properties=properties
            )
        return self._files[str(place)]


def _measured(crate: ROCrate, listed: _Listed, point: Point) -> ContextEntity:
    told = read_json(point.replay)
    run, folder = run_of(point.replay), point.replay.parent
    # Repeats of a point share its plan and proofs.
    recipe = point.replay.parents[2 if run.repeat > 1 else 1]
    plan = recipe / f"conc{run.concurrency}" / "plan.json"
    proofs = [
        path
        for part in ("weights", "image", "patches", "nodes")
        for path in sorted((recipe / part).rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".")
    ]
    evidence = sorted(path for path in (folder / told["attempt"]).rglob("*") if path.is_file())
    stated = {
        "startTime": told["started"],
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "identifier": [f"{name}={value}" for name, value in told["identity"].items()],
        "location": told["nodes"],
    }
    if "reused" in told:
        origin = f"{told['reused']['from']}, whose replay.json has {told['reused']['replay']}"
        stated["description"] = f"Measured in another checkout, and taken from there: {origin}"
    return _action(
        crate,
        f"#{told['recipe']}-conc{run.concurrency}-{Path(told['attempt']).name}",
        name=f"Measure {told['recipe']} at concurrency {told['concurrency']}",
        instrument=_workflow(crate, told.get("workflow")),
        objects=[listed.file(path) for path in [plan, *proofs, *point.outside]],
        results=[listed.file(path) for path in [point.replay, *evidence]],
        stated=stated,
    )


def _workflow(crate: ROCrate, source: dict[str, Any] | None) -> ContextEntity:
    """The workflow at the source that measured; not known for what is computed anew at any time."""
    commit = (source or {}).get("commit")
    name = f"{REPOSITORY}-{commit}" if commit else REPOSITORY
    found = crate.get(name)
    if found is not None:
        return found
    properties: dict[str, Any] = {"@type": "SoftwareApplication", "name": "serve-repro"}
    if commit:
        properties["softwareVersion"] = commit
    if (source or {}).get("changed"):
        properties["description"] = "with changes to: " + ", ".join((source or {})["changed"])
    return crate.add(ContextEntity(crate, name, properties))


def _action(
    crate: ROCrate,
    identifier: str,
    *,
    name: str,
    instrument: ContextEntity,
    objects: list[File],
    results: list[File],
    stated: dict[str, Any] | None = None,
) -> ContextEntity:
    properties = {"@type": "CreateAction", "name": name, **(stated or {})}
    action = crate.add(ContextEntity(crate, identifier, properties))
    action["instrument"] = instrument
    action["object"] = objects
    action["result"] = results
    return action
