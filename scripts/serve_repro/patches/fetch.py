"""Files of others, named by address and hash: fetched once, kept under their hash."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from serve_repro.documents import file_sha256
from serve_repro.errors import UserError

TIMEOUT_S = 30.0
ATTEMPTS = 3
PAUSE_S = 1.0


def fetch(
    url: str,
    sha256: str,
    cache: Path,
    *,
    mirror: tuple[str, str] | None = None,
    offline: Path | None = None,
    pause_s: float = PAUSE_S,
) -> Path:
    """The file at `url`, as `cache`/`sha256`; its contents are hashed on every call.

    Args:
        url: pinned https address.
        sha256: hash that the file must have.
        cache: folder of fetched files, for example resources/patches.
        mirror: a prefix of the address and what stands in its place.
        offline: folder with files by hash or by base name; nothing is asked of the network then.
        pause_s: pause before the second attempt.

    Raises:
        UserError: another hash, an address that does not answer, a file that offline lacks.
    """
    if not url.startswith("https://"):
        raise UserError("only https addresses are fetched", where=url)
    kept = cache / sha256
    damaged = None
    if kept.is_file():
        damaged = file_sha256(kept)
        if damaged == sha256:
            return kept
    if offline is not None:
        data = _from_folder(url, sha256, offline)
        source = str(offline)
    else:
        source = _mirrored(url, mirror)
        try:
            data = _download(source, pause_s)
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(source, sha256, kept, damaged, error) from None
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise UserError(
            "the file has other contents than the pinned ones",
            where=source,
            expected=f"sha256 {sha256}",
            found=f"sha256 {found}",
            remedy="see who changed the file; do not take its new hash over unread",
        )
    cache.mkdir(parents=True, exist_ok=True)
    # Each process has its own partial file, so two that fetch at once cannot mix their bytes.
    part = cache / f"{sha256}.{os.getpid()}.part"
    try:
        part.write_bytes(data)
        part.replace(kept)
    finally:
        part.unlink(missing_ok=True)
    return kept


def _from_folder(url: str, sha256: str, folder: Path) -> bytes:
    """A file by hash or by base name."""
    name = Path(urlsplit(url).path).name
    for path in (folder / sha256, folder / name):
        if path.is_file():
            return path.read_bytes()
    raise UserError(
        "the offline folder lacks a file",
        where=str(folder),
        expected=f"{sha256} or {name}",
        remedy=f"copy {url} into the folder",
    )


def _mirrored(url: str, mirror: tuple[str, str] | None) -> str:
    """The address to ask. Plain http is for a mirror only: the hash is what vouches for the file."""
    if mirror is None or not url.startswith(mirror[0]):
        return url
    address = mirror[1] + url.removeprefix(mirror[0])
    if not address.startswith(("https://", "http://127.0.0.1:")):
        raise UserError("a mirror needs an https address", where=address)
    return address


def _download(address: str, pause_s: float) -> bytes:
    """The body, with retries; an answer that a retry cannot change is not asked for again."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:  # noqa: S310
                return bytes(answer.read())
        except (OSError, http.client.HTTPException) as error:
            final = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if final or attempt == ATTEMPTS:
                raise
        time.sleep(pause_s * attempt)
    raise AssertionError("the last attempt returns or raises")


def _unreachable(
    source: str, sha256: str, kept: Path, damaged: str | None, error: Exception
) -> UserError:
    """What to tell: without a copy, or with one that is no use."""
    if damaged is None:
        return UserError(
            f"cannot be fetched, and no copy is kept: {error}",
            where=source,
            remedy="see the network, name a mirror, or an offline folder",
        )
    return UserError(
        f"the kept copy is damaged, and {source} cannot be fetched: {error}",
        where=str(kept),
        expected=f"sha256 {sha256}",
        found=f"sha256 {damaged}",
        remedy="see the network, name a mirror, or an offline folder",
    )
