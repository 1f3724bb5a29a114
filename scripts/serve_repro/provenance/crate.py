"""The record of one summary as an RO-Crate: which run made which file from which others.

Each point, and each accuracy evaluation, is a CreateAction whose objects are its plan and proofs and
whose results are its artifacts; one more made the tables, pictures and the page from them. See the
Process Run Crate profile, https://w3id.org/ro/wfrun/process/0.5.
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


class Measured(NamedTuple):
    """One valid point or evaluation, and what it stands on."""

    result: Path
    """Its replay.json or eval.json."""
    outside: list[Path]
    """Its inputs that lie outside the results folder: settings, traces' manifest, environments."""


class Made(NamedTuple):
    """What was computed from points and evaluations."""

    of_points: list[Path]
    """Tables, pictures and the page."""
    of_evaluations: list[Path]
    """The table of evaluations, which the page shows too."""


def write_crate(
    results: Path,
    points: list[Measured],
    evaluations: list[Measured],
    made: Made,
    secrets: Mapping[str, bytes],
    licence: str,
) -> ROCrate:
    """Write ro-crate-metadata.json into the results folder; small files from outside are copied there.

    Args:
        results: the results folder, root of the crate.
        points: the points of the summary.
        evaluations: the accuracy evaluations; most recipes have none.
        made: what was computed from both.
        secrets: {variable: value} that must stand in no file.
        licence: address of the licence of the numbers.

    Raises:
        UserError: a file holds a secret.
    """
    crate = ROCrate()
    crate.name = "LLM-serving benchmark points with their evidence"
    crate.description = "Points measured by serve-repro; each can be traced to every file that made it."
    crate.license = licence
    started = [read_json(done.result)["started"] for done in [*points, *evaluations]]
    # The newest result's time, not the clock's: the same results give the same record.
    crate.root_dataset["datePublished"] = max(started)
    crate.root_dataset["conformsTo"] = crate.add(
        ContextEntity(crate, PROFILE, {"@type": "CreativeWork", "name": "Process Run Crate"})
    )
    listed = _Listed(crate, results, secrets)
    actions = [_point(crate, listed, point) for point in points]
    actions += [_evaluation(crate, listed, evaluation) for evaluation in evaluations]
    accuracy = [listed.file(path) for path in made.of_evaluations]
    if evaluations:
        actions.append(
            _action(
                crate,
                "#gather-evals",
                name="Gather the accuracy evaluations into a table",
                instrument=_workflow(crate, None),
                objects=[listed.file(evaluation.result) for evaluation in evaluations],
                results=accuracy,
            )
        )
    actions.append(
        _action(
            crate,
            "#summarise",
            name="Compute the summary, verdict, pictures and page from the points",
            instrument=_workflow(crate, None),
            objects=[*[listed.file(point.result) for point in points], *accuracy],
            results=[listed.file(path) for path in made.of_points],
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


def _point(crate: ROCrate, listed: _Listed, point: Measured) -> ContextEntity:
    run = run_of(point.result)
    # Repeats of a point share its plan and proofs.
    recipe = point.result.parents[2 if run.repeat > 1 else 1]
    plan = recipe / f"conc{run.concurrency}" / "plan.json"
    name = f"Measure {run.recipe} at concurrency {run.concurrency}, run {run.repeat}"
    # Repeats may start in the same second, on other nodes.
    kind = f"conc{run.concurrency}" + (f"-rep{run.repeat}" if run.repeat > 1 else "")
    return _measured(crate, listed, point, kind, name, recipe, plan)


def _evaluation(crate: ROCrate, listed: _Listed, evaluation: Measured) -> ContextEntity:
    folder = evaluation.result.parent
    recipe, task = folder.parents[1], folder.name
    name = f"Evaluate {recipe.name} by {task}"
    return _measured(crate, listed, evaluation, f"eval-{task}", name, recipe, folder / "plan.json")


def _measured(
    crate: ROCrate,
    listed: _Listed,
    done: Measured,
    kind: str,
    name: str,
    recipe: Path,
    plan: Path,
) -> ContextEntity:
    """One attempt, with the proofs of its recipe's folder."""
    told = read_json(done.result)
    proofs = [
        path
        for part in ("weights", "image", "patches", "nodes")
        for path in sorted((recipe / part).rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".")
    ]
    attempt = done.result.parent / told["attempt"]
    evidence = sorted(path for path in attempt.rglob("*") if path.is_file())
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
        f"#{told['recipe']}-{kind}-{attempt.name}",
        name=name,
        instrument=_workflow(crate, told.get("workflow")),
        objects=[listed.file(path) for path in [plan, *proofs, *done.outside]],
        results=[listed.file(path) for path in [done.result, *evidence]],
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
