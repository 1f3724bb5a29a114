"""What an image has installed: where packages lie, their files, and versions of distributions."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any, NamedTuple

from serve_repro.errors import UserError
from serve_repro.image.call import CallFailed
from serve_repro.image.engine import Engine
from serve_repro.image.resolved import Image

# Packages are found and not imported. Each path is below the folder that holds its first part.
_LOOK = """
import base64, glob, hashlib, importlib.metadata, importlib.util, json, os, sys, zlib
wanted = json.loads(sys.argv[1])
paths, patterns = wanted["paths"], wanted["patterns"]
roots = {}
for top in sorted({path.split("/")[0] for path in paths + patterns}):
    spec = importlib.util.find_spec(top)
    places = list(spec.submodule_search_locations or []) if spec else []
    roots[top] = os.path.dirname(os.path.abspath(places[0])) if places else None
for pattern in patterns:
    root = roots[pattern.split("/")[0]]
    if root:
        matches = glob.glob(os.path.join(glob.escape(root), pattern))
        paths += sorted(os.path.relpath(match, root) for match in matches)
files, contents = {}, {}
for path in paths:
    root = roots[path.split("/")[0]]
    place = os.path.join(root, path) if root else ""
    if not os.path.isfile(place):
        files[path] = None
        continue
    data = open(place, "rb").read()
    files[path] = hashlib.sha256(data).hexdigest()
    if wanted["contents"]:
        contents[path] = base64.b64encode(zlib.compress(data)).decode()
versions = {}
for name in wanted["distributions"]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        versions[name] = None
print(json.dumps({"roots": roots, "files": files, "contents": contents, "versions": versions}))
"""


class Software(NamedTuple):
    """What was found."""

    roots: dict[str, str | None]
    """{package: the folder it lies in, inside the image}; None: not installed."""
    files: dict[str, str | None]
    """{path below that folder: sha256}; None: there is no such file."""
    contents: dict[str, bytes]
    """{path: bytes} of the files that are there, if they were asked for."""
    versions: dict[str, str | None]
    """{distribution: version}; None: not installed."""


def look(
    engine: Engine,
    image: Image,
    node: str,
    *,
    paths: list[str],
    patterns: list[str] | None = None,
    distributions: list[str] | None = None,
    contents: bool = False,
) -> Software:
    """Find files and versions with the image's own Python.

    Args:
        engine: what holds the image on this node.
        image: the image, which is here.
        node: this node's name, for messages.
        paths: files as <package>/<path in it>.
        patterns: more files, in the words of `glob`.
        distributions: names whose versions are asked.
        contents: whether the files' bytes are wanted too.

    Raises:
        UserError: the image's Python did not run.
    """
    wanted = {
        "paths": paths,
        "patterns": patterns or [],
        "distributions": distributions or [],
        "contents": contents,
    }
    try:
        said = engine.run(image, ["python3", "-I", "-", json.dumps(wanted)], stdin=_LOOK)
    except CallFailed as error:
        raise UserError(
            "Python does not run inside the image",
            where=f"node {node}: {image.pinned}",
            found=error.said,
        ) from error
    found: dict[str, Any] = json.loads(said)
    found["contents"] = {
        path: zlib.decompress(base64.b64decode(text)) for path, text in found["contents"].items()
    }
    return Software(**found)
