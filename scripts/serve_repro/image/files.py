"""Images that are one file on a node: made whole or not at all, proven by what they were made from."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_repro.documents import file_sha256, read_json, write_json
from serve_repro.errors import UserError
from serve_repro.image.call import CallFailed
from serve_repro.image.reference import image_file
from serve_repro.image.resolved import Image

LOGGER = logging.getLogger("serve_repro")


class ImageFiles:
    """The image files of one node.

    A file's own hash says nothing about the image (it holds times), so none is ever compared with
    another node's. What counts is kept in a record beside it: the parts from the registry, whose
    hashes were checked before the file got its name, and the file's status and hash on this node.

    Args:
        folder: the site's folder for them, on the node's own disk.
        suffix: their ending.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix = folder, suffix

    def path(self, image: Image) -> Path:
        """Where the image's file lies."""
        return image_file(self.folder, image.digest, self.suffix)

    def present(self, image: Image) -> str | None:
        """The configuration's digest that the file was made from; None: no file, or a changed one."""
        path, record = self.path(image), self._record(image)
        if not path.exists() or not record.exists():
            return None
        known = read_json(record)
        if known["status"] != _status(path):
            LOGGER.info("%s was touched since it was checked: hashing it", path)
            if file_sha256(path) != known["sha256"]:
                LOGGER.info("%s has other bytes than when it was made: it is made again", path)
                return None
            write_json(record, known | {"status": _status(path)})
        return str(known["config"])

    def make(self, image: Image, fetch: Callable[[Path, Path], set[str]]) -> None:
        """Fetch and make an image's file.

        Args:
            image: what is wanted.
            fetch: (work, part) makes the file `part`, keeps what came from the registry in `work`, and
                returns the digests of the blobs that came, each with its own bytes.

        Raises:
            CallFailed: what `fetch` raises. Parts that came whole are kept for the next try.
            UserError: what came is not the image.
        """
        path = self.path(image)
        part, work = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.work")
        part.unlink(missing_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        try:
            _check_parts(fetch(work, part), image)
        except CallFailed as error:
            part.unlink(missing_ok=True)
            if error.cause is None or not error.cause.transient:
                shutil.rmtree(work)
            raise
        except BaseException:
            part.unlink(missing_ok=True)
            shutil.rmtree(work)
            raise
        known = {"digest": image.digest, "config": image.config, "sha256": file_sha256(part)}
        self._record(image).unlink(missing_ok=True)
        part.replace(path)
        # Last: a file without its record does not count.
        write_json(self._record(image), known | {"status": _status(path)})
        shutil.rmtree(work)

    def _record(self, image: Image) -> Path:
        path = self.path(image)
        return path.with_name(f"{path.name}.json")


def _status(path: Path) -> dict[str, Any]:
    found = path.stat()
    return {"bytes": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}


def _check_parts(parts: set[str], image: Image) -> None:
    """The configuration and every layer came: the configuration names what the layers unpack to."""
    missing = [digest for digest in (image.config, *image.layers) if digest not in parts]
    if missing:
        raise UserError(
            "what was fetched is not the resolved image",
            where=image.pinned,
            expected=missing,
            found=sorted(parts) or "nothing",
            remedy="look at the registry or mirror that answers here; nothing was kept",
        )
