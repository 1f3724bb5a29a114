"""Fetch published traces into a hub cache of the workflow's own, and list what came."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from serve_repro import program
from serve_repro.documents import digest, file_sha256, write_json
from serve_repro.errors import UserError


def main(arguments: argparse.Namespace) -> None:
    """Repository and revision -> hub cache and manifest; the revision that came is recorded."""
    source = json.loads(arguments.source)
    cache: Path = arguments.output.parent / "hub"
    try:
        snapshot = Path(
            snapshot_download(
                source["repository"],
                repo_type="dataset",
                revision=source["revision"],
                cache_dir=cache,
            )
        )
    except (HfHubHTTPError, OSError) as error:
        raise UserError(
            f"the data set cannot be fetched: {error}",
            where=source["repository"],
            remedy="run this step where the hub can be reached: snakemake --until fetch_dataset",
        ) from error
    files = [path for path in sorted(snapshot.rglob("*")) if path.is_file()]
    listed = [{"path": str(path.relative_to(snapshot)), "sha256": file_sha256(path)} for path in files]
    manifest = {
        "folder": str(cache),
        "repository": source["repository"],
        "revision": snapshot.name,
        "files": listed,
        "digest": f"sha256:{digest(listed)}",
    }
    write_json(arguments.output, manifest)
    program.LOGGER.info("fetched %d files of revision %s", len(listed), snapshot.name)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--source", required=True, help="replay.dataset.hub of a recipe, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="manifest.json beside hub/")
    program.run(main, parser.parse_args())
