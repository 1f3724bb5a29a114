"""The one entry point that vLLM's plugin loader calls, once in each of its own processes.

Default deny: a hook is installed in vLLM's server, engine and workers, known by the names and words
that vLLM starts them with. A helper of vLLM's own that loads plugins too (it looks into a model's
class, say) stays as it is, and other programs never come here: only vLLM asks for this entry point.

`register` reads the patch set that the plan points at, checks each hook's target against the hash it
was written for, installs it, and leaves one line of attestation a hook and process. Whatever goes
wrong ends the process: a server that should be patched never serves unpatched.

Nothing heavy is imported here; a hook imports its target only when it is installed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import multiprocessing.util
import os
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

KINDS = {"VllmWorker": "worker", "EngineCore": "engine", "ApiServer": "api"}
"""How vLLM names the processes that it starts -> what series.yaml calls them."""

EXIT_NOT_PATCHED = 78
"""Exit code of a process that refuses to go on unpatched (EX_CONFIG)."""

_replaced: dict[str, list[str]] = {}
"""What each hook that is in this process's memory has replaced; a forked child has its parent's."""

_attested: set[tuple[int, str]] = set()
"""(process id, patch) of the lines that were written."""

_busy = False
"""Whether hooks are being installed: an import on the way may bring vLLM to load plugins again."""


def register() -> None:
    """Install every hook of the patch set that is for this kind of process, or end the process.

    A second call in the same process changes nothing.
    """
    global _busy
    set_path = os.environ.get("SERVE_REPRO_PATCH_SET")
    kind = kind_of(multiprocessing.current_process().name, sys.argv)
    if not set_path or kind is None or _busy:
        return
    _busy = True
    hooks = json.loads(Path(set_path).read_text(encoding="utf-8"))["hooks"]
    overlay = json.loads(Path(set_path).with_name("overlay.json").read_text(encoding="utf-8"))
    # What lies over the image comes first: hooks are for the files that result.
    for entry in [*overlay["patches"], *hooks]:
        if kind in entry["processes"] and (os.getpid(), entry["id"]) not in _attested:
            _install(entry, kind)
    _busy = False


def kind_of(process: str, argv: list[str]) -> str | None:
    """worker, engine or api, from a process's name and command line; None: none of vLLM's own."""
    if process == "MainProcess":  # whoever was started by a command line
        return "api" if argv[1:2] == ["serve"] else None
    return next((kind for name, kind in KINDS.items() if process.startswith(name)), None)


def _install(entry: dict[str, Any], kind: str) -> None:
    line: dict[str, Any] = {
        "patch": entry["id"],
        "rank": int(os.environ["SERVE_REPRO_RANK"]),
        "pid": os.getpid(),
        "process": kind,
        "installed": False,
    }
    try:
        if "hook" in entry:
            line["targets"] = checked(entry)
            if entry["id"] not in _replaced:
                hook = importlib.import_module(f"serve_repro_hooks.{entry['hook']}")
                _replaced[entry["id"]] = hook.install()
            line["replaced"] = _replaced[entry["id"]]
        else:
            line["targets"] = overlaid(entry)
        line["installed"] = True
    except BaseException as error:
        line["reason"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    _attest(line)
    if not line["installed"]:
        print(
            f"serve_repro_hooks: {entry['id']} is not installed: {line['reason']}",
            file=sys.stderr,
            flush=True,
        )
        # Not sys.exit: vLLM's loaders catch exceptions, and then serve without the patch.
        os._exit(EXIT_NOT_PATCHED)
    _attested.add((os.getpid(), entry["id"]))


def _again_in_child(_: object) -> None:
    register()


# A forked engine or worker inherits vLLM's mark that plugins are loaded, and would not come here.
# This is called in it once it has its own name. A spawned one begins anew, as vLLM has it.
multiprocessing.util.register_after_fork(_again_in_child, _again_in_child)


def source_of(module: str) -> Path:
    """The file of a module, found without importing the module or its parents' contents."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"the package {top} is not installed here")
    base = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    raise ImportError(f"{module} has no source file at {base}.py")


def checked(entry: dict[str, Any]) -> list[dict[str, str]]:
    """The targets of a hook with the hashes that they have here.

    Raises:
        RuntimeError: a target has another source than the hook was written for, the targets are of
            different versions, or the software has its own remedy.
        ImportError: a target is not installed.
    """
    own = entry["superseded_by"]
    if own and _is_installed(own):
        raise RuntimeError(f"this software has its own remedy, {own}: take the patch out of the recipe")
    seen, versions = [], []
    for target in entry["targets"]:
        found = hashlib.sha256(source_of(target["module"]).read_bytes()).hexdigest()
        fits = {version for version, sha256 in target["sha256"].items() if sha256 == found}
        if not fits:
            wanted = " or ".join(target["sha256"].values())
            raise RuntimeError(f"{target['module']} has sha256 {found}, expected {wanted}")
        seen.append({"module": target["module"], "sha256": found})
        versions.append(fits)
    if not set.intersection(*versions):
        raise RuntimeError(f"the targets are of different versions: {[*map(sorted, versions)]}")
    return seen


def overlaid(entry: dict[str, Any]) -> list[dict[str, str]]:
    """The files, table or version of a patch that lies over the image, as this process has them.

    Raises:
        RuntimeError: this process imports, or would read, something else than what was built.
        ImportError: a package is not installed.
    """
    seen = [_same(_file_of(file["path"]), file) for file in entry["files"]]
    if entry["table"]:
        variable = entry["table"]["variable"]
        path = os.environ.get(variable, "")
        seen.append(_same(Path(path), {"path": f"${variable}", **entry["table"]}))
    if entry["version"]:
        name, wanted = entry["version"]["distribution"], entry["version"]["version"]
        from importlib.metadata import version

        found = version(name)
        if found.split("+")[0] != wanted:
            raise RuntimeError(f"{name} has version {found}, expected {wanted}")
        seen.append({"distribution": name, "version": found})
    return seen


def _file_of(path: str) -> Path:
    """Where this process finds a file of a package; a module that is loaded must be from there."""
    top, *rest = path.split("/")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"the package {top} is not installed here")
    place = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    loaded = sys.modules.get(path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    origin = getattr(loaded, "__file__", None)
    if path.endswith(".py") and origin is not None and Path(origin) != place:
        raise RuntimeError(f"{path} is loaded from {origin}, expected {place}")
    return place


def _same(place: Path, expected: dict[str, str]) -> dict[str, str]:
    if not place.is_file():
        raise RuntimeError(f"there is no file {place} for {expected['path']}")
    found = hashlib.sha256(place.read_bytes()).hexdigest()
    if found != expected["sha256"]:
        raise RuntimeError(f"{place} has sha256 {found}, expected {expected['sha256']}")
    return {"path": expected["path"], "sha256": found}


def _is_installed(module: str) -> bool:
    try:
        return source_of(module).is_file()
    except ImportError:
        return False


def _attest(line: dict[str, Any]) -> None:
    """Append one line; a single write of this size is not mixed with another process's."""
    with open(os.environ["SERVE_REPRO_ATTESTATIONS"], "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, sort_keys=True) + "\n")
