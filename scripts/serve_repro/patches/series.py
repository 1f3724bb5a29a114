"""patches/series.yaml: every patch that a recipe may name, and the identity of a chosen set."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from serve_repro.documents import digest, file_sha256
from serve_repro.errors import UserError
from serve_repro.recipe.base import EnvName, Name, Sha256, Strict
from serve_repro.recipe.load import load, meant

HOOK_PACKAGE = "hooks/serve_repro_hooks"
"""Folder of our own hooks, below patches/."""


PackagePath = Annotated[str, Field(pattern=r"^\w[\w.-]*(/\w[\w.-]*)+$")]
"""A file of an installed package: <package>/<path in it>."""


class Target(Strict):
    """A module that a hook changes, and the sources it was written for."""

    module: str
    """Dotted name."""
    sha256: dict[str, Sha256]
    """Hash of the module's source file in each of the patch's versions."""


class Patch(Strict):
    """One change to the serving software."""

    id: Name
    """What recipes call it."""
    kind: Literal["hook", "diff", "script", "data", "version"]
    """hook: our own Python; diff, script, data: others' files by address; version: what must be in."""
    why: str
    """The defect, in a sentence or two."""
    upstream: str | None
    """Where it is reported or fixed upstream; null: nowhere yet."""
    versions: list[str]
    """The software it is for."""
    expires: date
    """The day on which someone must look whether it is still needed."""
    hook: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    """hook: module in patches/hooks/serve_repro_hooks/."""
    targets: list[Target] = []
    """hook: what it changes; all of them must be of one version."""
    superseded_by: str | None = None
    """hook: a module whose presence shows that the software has its own remedy; then it is refused."""
    processes: list[Literal["worker", "engine", "api"]] = []
    """hook: which of vLLM's processes it is installed in; each of them must say that it is."""
    url: Annotated[str, Field(pattern=r"^https://")] | None = None
    """diff, script, data: address at a pinned commit."""
    sha256: Sha256 | None = None
    """diff, script, data: hash of the file at that address."""
    files: list[PackagePath] = []
    """script: the files that it changes, all of them and no other."""
    reads: list[PackagePath] = []
    """script: files that it only reads."""
    env: dict[EnvName, str] = {}
    """script: variables that it is run with."""
    failure: str | None = None
    """script: a text that tells of a failure in its output, where its exit code does not."""
    path: PackagePath | None = None
    """data: the file that it becomes."""
    table: Literal["bf16_gemm"] | None = None
    """data: the table of aiter's over which its rows are laid (rule merge_gemm_configs)."""
    distribution: str | None = None
    """version: name of the distribution."""
    version: str | None = None
    """version: its version; a local part (+...) does not count."""

    @model_validator(mode="after")
    def _fields_of_the_kind(self) -> Patch:
        if self.kind == "hook" and not (self.hook and self.targets and self.processes):
            raise ValueError(f"{self.id}: a hook needs 'hook', 'targets' and 'processes'")
        addressed = self.kind in ("diff", "script", "data")
        if addressed and (self.url is None or self.sha256 is None):
            raise ValueError(f"{self.id}: a {self.kind} needs 'url' and 'sha256'")
        if self.kind == "script" and not self.files:
            raise ValueError(f"{self.id}: a script needs 'files', all that it changes")
        if self.kind == "data" and (self.path is None) == (self.table is None):
            raise ValueError(f"{self.id}: data needs 'path' or 'table', one of them")
        if self.kind == "version" and not (self.distribution and self.version):
            raise ValueError(f"{self.id}: a version needs 'distribution' and 'version'")
        for target in self.targets:
            if set(target.sha256) != set(self.versions):
                raise ValueError(
                    f"{self.id}: {target.module} needs one hash for each of the versions "
                    f"{self.versions}, and has {[*target.sha256]}"
                )
        return self


class Series(Strict):
    """All patches, in the order in which they are applied."""

    patches: list[Patch]
    """The patches."""

    @model_validator(mode="after")
    def _unique(self) -> Series:
        ids = [patch.id for patch in self.patches]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"the id {name} stands twice")
        return self


def read_series(folder: Path) -> Series:
    """Read patches/series.yaml of a patches folder."""
    return load(folder / "series.yaml", Series)


def choose(series: Series, ids: list[str], where: str) -> list[Patch]:
    """The patches with these ids, in the recipe's order.

    Raises:
        UserError: an id that the series does not have.
    """
    known = {patch.id: patch for patch in series.patches}
    for name in ids:
        if name not in known:
            raise UserError(f"unknown patch {name!r}{meant(name, known)}", where=where)
    return [known[name] for name in ids]


def content_sha256(patch: Patch, folder: Path) -> str:
    """Hash of what a patch does: its code or file, not its description.

    Raises:
        UserError: a hook whose module is not there.
    """
    if patch.kind != "hook":
        return digest(what_it_does(patch))
    package = folder / HOOK_PACKAGE
    module = package / f"{patch.hook}.py"
    if not module.is_file():
        raise UserError(f"the hook {patch.id} has no module", where=str(module))
    parts = [file_sha256(module), file_sha256(package / "__init__.py")]
    targets = [target.model_dump() for target in patch.targets]
    return digest([*parts, targets, patch.superseded_by, patch.processes])


def what_it_does(patch: Patch) -> dict[str, Any]:
    """The fields of an entry that decide what it changes; an address does not, the hash there does."""
    fields = {"id", "kind", "sha256", "files", "reads", "env", "failure", "path", "table"}
    return patch.model_dump(include=fields | {"distribution", "version"}, exclude_defaults=True)


def set_id(patches: list[Patch], folder: Path) -> str:
    """Identity of a patch set: ids, order and contents (sha256, hex)."""
    return digest([[patch.id, patch.kind, content_sha256(patch, folder)] for patch in patches])
