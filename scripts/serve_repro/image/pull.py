"""Have an image on this node: once, whole, and proven; or a clear reason why not."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from serve_repro.errors import UserError
from serve_repro.image.call import CallFailed
from serve_repro.image.causes import LOGIN, retry_after_s
from serve_repro.image.engine import Engine
from serve_repro.image.resolved import Image

LOGGER = logging.getLogger("serve_repro")

WAITS = (5.0, 20.0, 60.0)
"""Seconds between tries, where trying again may help."""

LONGEST_WAIT_S = 600.0
"""A registry that asks for more than this is not waited for."""

_LEAST_S, _SLOWEST = 900.0, 2e6
"""A try may take this many seconds, and one more for each so many bytes."""


class Outcome(NamedTuple):
    """How a node came to have its image."""

    tries: int
    """0: it was there."""
    seconds: float


def have(engine: Engine, image: Image, node: str, waits: Sequence[float] = WAITS) -> Outcome:
    """Have exactly this image on this node.

    What is there and proven is not asked of any registry. Of several processes, one pulls.

    Args:
        engine: what holds the images here.
        image: what was resolved.
        node: this node's name, for messages.
        waits: seconds between tries.

    Raises:
        UserError: it cannot be had, or what is there is another one; nothing half is left behind
            that a later run would take for the image.
    """
    began, where = time.monotonic(), f"node {node}: {image.pinned}"
    try:
        with _alone(node, image):
            found, tries = engine.present(image), 0
            if found is None:
                _require_space(engine, image, where)
                tries = _fetch(engine, image, where, waits)
                found = engine.present(image)
    except CallFailed as error:
        raise _told(error, engine, where) from error
    if found != image.config:
        raise UserError(
            "what this node has under that digest is not what was resolved",
            where=where,
            expected=image.config,
            found=found or "nothing, although the engine said that it was pulled",
            remedy=f"on this node: {engine.removal(image)}; then run again",
        )
    return Outcome(tries, time.monotonic() - began)


def _fetch(engine: Engine, image: Image, where: str, waits: Sequence[float]) -> int:
    """Try until it is here; returns the number of tries."""
    limit = _LEAST_S + image.size / _SLOWEST
    for number, wait in enumerate([*waits, None], 1):
        LOGGER.info("%s: pulling %d bytes, try %d of %d", where, image.size, number, len(waits) + 1)
        try:
            engine.fetch(image, limit)
            return number
        except CallFailed as error:
            transient = error.cause is not None and error.cause.transient
            LOGGER.info("%s: try %d failed: %s", where, number, error.said)
            if wait is None or not transient:
                raise
            asked = retry_after_s(error.message)
            if asked is not None and asked > LONGEST_WAIT_S:
                raise
            LOGGER.info("trying again in %g s", max(wait, asked or 0))
            time.sleep(max(wait, asked or 0))
    raise AssertionError("the last try returns or raises")


def _require_space(engine: Engine, image: Image, where: str) -> None:
    needed = image.size * engine.space
    for store in engine.stores():
        there = next((path for path in [store, *store.parents] if path.exists()), None)
        if there is None or not needed:
            continue
        free = shutil.disk_usage(there).free
        if free < needed:
            raise UserError(
                "not enough free space for this image",
                where=f"{where}, {store}",
                expected=f"{needed} bytes ({engine.space} for each of the {image.size} that travel)",
                found=f"{free} bytes",
                remedy="free space there: old images first",
            )


def _told(error: CallFailed, engine: Engine, where: str) -> UserError:
    """What a person is told when the last try has failed."""
    cause = error.cause
    if cause is None:
        # enroot says nothing at all where a login is wanted.
        remedy = f"see what the engine said; if the registry wants a login: {engine.credentials}"
        return UserError(
            "the engine cannot pull the image", where=where, found=error.said, remedy=remedy
        )
    remedy = engine.credentials if cause is LOGIN else cause.remedy
    return UserError(cause.problem, where=where, found=error.said, remedy=remedy)


@contextmanager
def _alone(node: str, image: Image) -> Iterator[None]:
    """Hold this node's lock for this image; it falls with the process, however that ends."""
    name = f"serve-repro-{os.getuid()}-{node}-{image.digest.removeprefix('sha256:')[:16]}.lock"
    path = Path(tempfile.gettempdir()) / name
    handle = _lock(path, image)
    try:
        yield
    finally:
        path.unlink()
        os.close(handle)


def _lock(path: Path, image: Image) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            LOGGER.info("another process has %s under way on this node: waiting for it", image.pinned)
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Whoever held it has taken the file away: a newcomer would lock another one.
        try:
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)
