"""Tell for every patch of the series whether it fits an installed vLLM, or an image."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from serve_repro import program
from serve_repro.documents import read_json
from serve_repro.errors import UserError
from serve_repro.image.engine import engine_of
from serve_repro.image.resolved import read_image
from serve_repro.image.software import look
from serve_repro.patches.fetch import fetch
from serve_repro.patches.fit import APPLIES, Fit, fit, installed_versions
from serve_repro.patches.overlay import needed_files
from serve_repro.patches.series import Patch, choose, read_series, what_it_does

PACKAGES = Path(".envs/serve-cpu/lib/python3.11/site-packages")


def main(arguments: argparse.Namespace) -> int:
    """Installed packages, or an image on this node -> one line a patch; 0 if all apply, else 1."""
    series = read_series(arguments.patches)
    chosen = choose(series, arguments.ids, "--ids") if arguments.ids else series.patches
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        fetched = {patch.id: _fetched(patch, arguments) for patch in chosen}
        packages, versions = _software(chosen, fetched, arguments, work)
        rows = []
        for patch in chosen:
            file = fetched[patch.id]
            seen = (
                file if isinstance(file, Fit) else fit(patch, file, packages, work / "overlay", versions)
            )
            rows.append({"id": patch.id, "kind": patch.kind, **seen._asdict()})
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            # Messages have several lines, and the table has one a patch.
            detail = " ".join(row["detail"].split())
            print(f"{row['id']:26} {row['kind']:7} {row['status']:22} {detail}".rstrip())
    return 0 if all(row["status"] == APPLIES for row in rows) else 1


def _fetched(patch: Patch, arguments: argparse.Namespace) -> Path | Fit | None:
    """A patch's file; None if it has none; what to tell if it cannot be had."""
    if patch.url is None or patch.sha256 is None:
        return None
    mirror = tuple(arguments.mirror) if arguments.mirror else None
    try:
        return fetch(patch.url, patch.sha256, arguments.cache, mirror=mirror, offline=arguments.offline)
    except UserError as error:
        return Fit("cannot be fetched", str(error))


def _software(
    chosen: list[Patch],
    fetched: dict[str, Path | Fit | None],
    arguments: argparse.Namespace,
    work: Path,
) -> tuple[Path, dict[str, str]]:
    """The folder of packages and the versions; of an image, copies of the files that matter."""
    if arguments.image is None:
        if not arguments.packages.is_dir():
            raise UserError("there is no such folder of packages", where=str(arguments.packages))
        return arguments.packages, installed_versions(arguments.packages)
    others = [
        {**what_it_does(patch), "file": file.absolute()}
        for patch in chosen
        if isinstance(file := fetched[patch.id], Path)
    ]
    paths, patterns = needed_files({"others": others}, work)
    modules = [target.module for patch in chosen for target in patch.targets]
    modules += [patch.superseded_by for patch in chosen if patch.superseded_by]
    bases = [module.replace(".", "/") for module in modules]
    paths += [path for base in bases for path in (f"{base}.py", f"{base}/__init__.py")]
    found = look(
        engine_of(arguments.engine),
        read_image(read_json(arguments.image)),
        "here",
        paths=list(dict.fromkeys(paths)),
        patterns=patterns,
        distributions=[patch.distribution for patch in chosen if patch.distribution],
        contents=True,
    )
    packages = work / "packages"
    for path, data in found.contents.items():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_bytes(data)
    return packages, {name: version for name, version in found.versions.items() if version}


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="a site-packages folder")
    parser.add_argument("--image", type=Path, help="a node's image receipt, in place of --packages")
    parser.add_argument(
        "--engine",
        type=json.loads,
        default={"runtime": "process", "command": [], "images": None},
        help='JSON: what holds the image: {"runtime": "docker", "command": ["docker"], "images": null}',
    )
    parser.add_argument("--patches", type=Path, default=Path("patches"), help="folder of the series")
    parser.add_argument("--ids", nargs="+", help="only these, in this order")
    parser.add_argument("--cache", type=Path, default=Path("resources/patches"), help="fetched files")
    parser.add_argument("--mirror", nargs=2, metavar=("PREFIX", "INSTEAD"), help="other addresses")
    parser.add_argument("--offline", type=Path, help="folder of files by hash or name; no network")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    program.run(main, parser.parse_args())
