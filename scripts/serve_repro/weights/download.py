"""Fetch a model from the hub into a root's hub layout.

huggingface_hub continues a broken connection where it broke, tries a few times, and keeps every file
that is complete: a later call fetches the rest. The token is the environment's HF_TOKEN or none.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from pathlib import Path

import httpx
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from serve_repro.errors import UserError
from serve_repro.weights.locate import Found, expanded, hub_name

LOGGER = logging.getLogger("serve_repro")
PROGRESS_S = 10.0


def is_cut(model_id: str, found: Found) -> bool:
    """Whether a hub folder lacks files that its own list of this revision names. Asks nobody."""
    if found.layout != "hub":
        return False
    try:
        snapshot_download(
            model_id, revision=found.revision, cache_dir=found.mount.parent, local_files_only=True
        )
    except LocalEntryNotFoundError:
        return True
    return False


def download(model_id: str, revision: str | None, root: str) -> Found:
    """Fetch all files of a revision (null: of what main is now), or those that are not there yet.

    Raises:
        UserError: the hub or the disk refuses; says why and what to do.
    """
    cache = expanded(root)
    hub = cache / hub_name(model_id)
    token = os.environ.get("HF_TOKEN") or False
    wanted = revision or "main"
    try:
        info = HfApi(token=token).model_info(model_id, revision=wanted, files_metadata=True)
        total = sum(file.size or 0 for file in info.siblings or [])
        missing = total - _bytes_below(hub / "blobs")
        _check_space(cache, model_id, missing)
        with _Progress(model_id, hub / "blobs", total):
            folder = snapshot_download(model_id, revision=wanted, cache_dir=cache, token=token)
    except GatedRepoError as error:
        raise _refused(
            "the hub gives this model only to those who accepted its terms",
            model_id,
            "accept them on the model's page, and set HF_TOKEN to a token of that account",
        ) from error
    except RevisionNotFoundError as error:
        raise UserError(
            "the hub has no such revision of this model",
            where=model_id,
            expected=f"revision {wanted}",
            found="404",
            remedy="correct model.revision in the recipe",
        ) from error
    except RepositoryNotFoundError as error:
        raise _refused(
            "the hub has no such model, or does not show it without a token",
            model_id,
            "correct model.id in the recipe, or set HF_TOKEN",
        ) from error
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        raise UserError(
            f"the download broke off: {error}",
            where=f"{model_id} -> {hub}",
            remedy="run again: complete files are kept, and the rest is fetched",
        ) from error
    return Found(cache / Path(folder).relative_to(cache.resolve()), "hub", Path(folder).name, root)


def _refused(problem: str, model_id: str, remedy: str) -> UserError:
    token = "with HF_TOKEN" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
    return UserError(problem, where=model_id, found=f"refused, {token}", remedy=remedy)


def _check_space(cache: Path, model_id: str, missing: int) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if missing > free:
        raise UserError(
            "not enough room for this model",
            where=f"{model_id} -> {cache}",
            expected=f"{missing / 1e9:.1f} GB",
            found=f"{free / 1e9:.1f} GB free",
            remedy="make room, or download_weights_to another root",
        )


def _bytes_below(folder: Path) -> int:
    """Bytes that are there; files come and go while it looks."""
    total = 0
    for path in folder.glob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


class _Progress:
    """Tells every few seconds how much is there, by looking at the folder."""

    def __init__(self, model_id: str, blobs: Path, total: int) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, args=(model_id, blobs, total), daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self, model_id: str, blobs: Path, total: int) -> None:
        began, before = time.monotonic(), _bytes_below(blobs)
        LOGGER.info("%s: downloading, %.2f of %.2f GB are there", model_id, before / 1e9, total / 1e9)
        while not self._over.wait(PROGRESS_S):
            there = _bytes_below(blobs)
            rate = (there - before) / (time.monotonic() - began)
            left = (total - there) / rate if rate > 0 else float("inf")
            words = "%s: %.2f of %.2f GB, %.3f GB/s, %.0f s left"
            LOGGER.info(words, model_id, there / 1e9, total / 1e9, rate / 1e9, left)
