"""Tell for every patch of the series whether it fits an installed vLLM."""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from serve_repro import program
from serve_repro.errors import UserError
from serve_repro.patches.apply import ALREADY, apply, files_of
from serve_repro.patches.bundle import check_targets
from serve_repro.patches.fetch import fetch
from serve_repro.patches.series import Patch, choose, read_series

PACKAGES = Path(".envs/serve-cpu/lib/python3.11/site-packages")
OTHER = "not for this software"


def main(arguments: argparse.Namespace) -> int:
    """Installed packages -> one line a patch; 0 if all apply, else 1."""
    packages = arguments.packages
    if not packages.is_dir():
        raise UserError("there is no such folder of packages", where=str(packages))
    series = read_series(arguments.patches)
    chosen = choose(series, arguments.ids, "--ids") if arguments.ids else series.patches
    rows = []
    with tempfile.TemporaryDirectory() as overlay:
        for patch in chosen:
            status, detail = _look(patch, arguments, Path(overlay))
            rows.append({"id": patch.id, "kind": patch.kind, "status": status, "detail": detail})
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            # Messages have several lines, and the table has one a patch.
            detail = " ".join(row["detail"].split())
            print(f"{row['id']:26} {row['kind']:7} {row['status']:22} {detail}".rstrip())
    return 0 if all(row["status"] == "applies" for row in rows) else 1


def _look(patch: Patch, arguments: argparse.Namespace, overlay: Path) -> tuple[str, str]:
    """Status and detail. Diffs that apply stay in the overlay: the next may build on them."""
    packages = arguments.packages
    if patch.kind == "hook":
        hook = patch.model_dump(include={"id", "targets", "superseded_by"})
        try:
            check_targets({"hooks": [hook]}, packages, "here")
        except UserError as error:
            return "does not match", str(error)
        return "applies", ""
    mirror = tuple(arguments.mirror) if arguments.mirror else None
    assert patch.url is not None and patch.sha256 is not None  # the document's own check
    try:
        path = fetch(patch.url, patch.sha256, arguments.cache, mirror=mirror, offline=arguments.offline)
    except UserError as error:
        return "cannot be fetched", str(error)
    if patch.kind != "diff":
        # What a script or table does to the software cannot be tried: its stated versions decide.
        listed = any(version in patch.versions for version in _installed(packages))
        return ("applies", "by its versions") if listed else (OTHER, ", ".join(patch.versions))
    try:
        parts = files_of(path.read_text(encoding="utf-8"), str(path))
        old = [part.path for part in parts if part.needs_file() and part.path[:6] != "tests/"]
        if old and not any((folder / name).is_file() for folder in (packages, overlay) for name in old):
            return OTHER, "none of its files is installed"
        apply(path, packages, overlay)
    except UserError as error:
        already = error.problem == ALREADY
        return ("upstream already", "") if already else ("does not match", str(error))
    return "applies", ""


def _installed(packages: Path) -> list[str]:
    """What is installed, as series.yaml words it."""
    found = distributions(path=[str(packages)])
    return [f"{item.metadata['Name']} {item.version}" for item in found]


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="a site-packages folder")
    parser.add_argument("--patches", type=Path, default=Path("patches"), help="folder of the series")
    parser.add_argument("--ids", nargs="+", help="only these, in this order")
    parser.add_argument("--cache", type=Path, default=Path("resources/patches"), help="fetched files")
    parser.add_argument("--mirror", nargs=2, metavar=("PREFIX", "INSTEAD"), help="other addresses")
    parser.add_argument("--offline", type=Path, help="folder of files by hash or name; no network")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    program.run(main, parser.parse_args())
