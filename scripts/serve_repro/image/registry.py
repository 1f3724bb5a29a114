"""What a tag names in its registry right now, down to the layers; no layer is fetched.

Only skopeo talks to the registry: it knows the user's credentials and mirrors. What it prints raw is
hashed here, so a digest is one of bytes that were seen, and not of what a header claims.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from serve_repro.errors import UserError
from serve_repro.image.causes import cause_of, last_words, scrub
from serve_repro.image.reference import is_loopback

PLATFORM = ("linux", "amd64")
"""The only platform that recipes are measured on."""

WAITS = (2.0, 8.0)
"""Seconds between tries, where trying again may help."""

_TIMEOUT = 90.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LISTS = (
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
_SINGLE = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)


class Contents(NamedTuple):
    """What one platform's manifest lists."""

    config: str
    """Digest of the configuration: Docker's image Id."""
    layers: list[dict[str, Any]]
    """{digest, bytes} of each layer, compressed, lowest first."""


def resolve(
    reference: str, name: str, pin: str | None, waits: Sequence[float] = WAITS
) -> dict[str, Any]:
    """What a tag names now.

    Args:
        reference: image name and tag.
        name: the same without the tag.
        pin: the digest that the tag must have; None: any.
        waits: seconds between tries.

    Returns:
        {digest, platform, config, layers, bytes}; digest is the list's where there is a list, and
        what a pull by digest names.

    Raises:
        UserError: no skopeo, no answer, no such tag, no login, a tag that has moved, or an image that
            is not for this platform.
    """
    if "@" in reference:
        raise UserError("a reference is a name and a tag, without a digest", where=reference)
    raw = _inspect(reference, reference, ["--raw"], waits)
    digest = platform = sha256(raw)
    # Before anything else is asked: the rest would be about another image.
    if pin is not None and pin != digest:
        raise UserError(
            "the tag has moved: it names another image than the recipe pins",
            where=reference,
            expected=pin,
            found=digest,
            remedy="if the new image is meant, set the recipe's image.digest to what was found",
        )
    document = parse(raw, reference)
    if is_list(document):
        platform = platform_digest(document, reference)
        raw = _inspect(f"{name}@{platform}", reference, ["--raw"], waits)
        _same(raw, platform, reference)
        contents = read_manifest(parse(raw, reference), reference)
    else:
        contents = read_manifest(document, reference)
        # No list says what this is for; its configuration does.
        raw = _inspect(f"{name}@{digest}", reference, ["--raw", "--config"], waits)
        _same(raw, contents.config, reference)
        require_platform(parse(raw, reference), reference)
    return {
        "digest": digest,
        "platform": platform,
        "config": contents.config,
        "layers": contents.layers,
        "bytes": sum(layer["bytes"] for layer in contents.layers),
    }


def sha256(raw: bytes) -> str:
    """The digest of bytes, as registries write it."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def parse(raw: bytes, where: str) -> dict[str, Any]:
    """A manifest, list or configuration as a mapping.

    Raises:
        UserError: anything else.
    """
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise UserError(f"the registry's answer is not JSON: {error}", where=where) from error
    if not isinstance(document, dict):
        raise UserError("the registry's answer is not a manifest", where=where)
    return document


def is_list(document: dict[str, Any]) -> bool:
    """Whether this lists manifests, one a platform, and is not a manifest itself."""
    # OCI lets a document leave its media type out; then its parts tell.
    kind = document.get("mediaType")
    return kind in _LISTS or (kind is None and "manifests" in document and "layers" not in document)


def platform_digest(document: dict[str, Any], where: str) -> str:
    """The digest that a list gives for our platform.

    Raises:
        UserError: there is none.
    """
    found = []
    for entry in _entries(document, "manifests", where):
        platform = entry.get("platform") or {}
        if not isinstance(platform, dict):
            raise UserError("its list has an entry with a platform that is none", where=where)
        if (platform.get("os"), platform.get("architecture")) == PLATFORM:
            return _digest(entry, where)
        found.append(f"{platform.get('os')}/{platform.get('architecture')}")
    raise _other_platform(where, ", ".join(found) or "an empty list")


def require_platform(config: dict[str, Any], where: str) -> None:
    """Check that an image's configuration is for our platform.

    Raises:
        UserError: it is for another one.
    """
    if (config.get("os"), config.get("architecture")) != PLATFORM:
        raise _other_platform(where, f"{config.get('os')}/{config.get('architecture')}")


def read_manifest(document: dict[str, Any], where: str) -> Contents:
    """Configuration and layers of one manifest, Docker's (v2, schema 2) or OCI's.

    Raises:
        UserError: a schema 1 manifest, which has no such digests, or anything else.
    """
    kind = document.get("mediaType")
    if document.get("schemaVersion") == 1:
        raise UserError(
            "the image has only a manifest of schema 1, which does not name its contents by digest",
            where=where,
            expected="Docker schema 2 or OCI",
            remedy="push the image again with a current tool",
        )
    if (kind is not None and kind not in _SINGLE) or "manifests" in document:
        raise UserError("this is no image manifest", where=where, expected=_SINGLE, found=kind)
    config = document.get("config")
    if not isinstance(config, dict):
        raise UserError("the manifest names no configuration", where=where)
    layers = []
    for entry in _entries(document, "layers", where):
        size = entry.get("size")
        if type(size) is not int or size < 0:
            raise UserError("a layer of the manifest has no size", where=where, found=size)
        layers.append({"digest": _digest(entry, where), "bytes": size})
    return Contents(config=_digest(config, where), layers=layers)


def _entries(document: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    entries = document.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"the manifest has no list of {key}", where=where)
    return entries


def _digest(entry: dict[str, Any], where: str) -> str:
    digest = entry.get("digest")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise UserError("not a sha256 digest", where=where, expected="sha256:<64 hex>", found=digest)
    return digest


def _same(raw: bytes, digest: str, where: str) -> None:
    if sha256(raw) != digest:
        raise UserError(
            "the registry sent something else than was asked for by digest",
            where=where,
            expected=digest,
            found=sha256(raw),
        )


def _other_platform(where: str, found: str) -> UserError:
    return UserError(
        "the image is not for this platform", where=where, expected="/".join(PLATFORM), found=found
    )


def _inspect(target: str, where: str, options: list[str], waits: Sequence[float]) -> bytes:
    """What skopeo prints, tried again where that may help."""
    # TLS is left out only where the traffic cannot leave the machine.
    options = [*options, *(["--tls-verify=false"] if is_loopback(target) else [])]
    argv = ["skopeo", "inspect", *options, f"docker://{target}"]
    for wait in [*waits, None]:
        try:
            run = subprocess.run(argv, capture_output=True, check=False, timeout=_TIMEOUT)
            code, message = run.returncode, run.stderr.decode(errors="replace")
        except FileNotFoundError as error:
            raise UserError(
                "skopeo is not installed here; images are resolved with it",
                where=where,
                remedy="apt-get install skopeo, or your system's package of that name",
            ) from error
        except subprocess.TimeoutExpired:
            code, message = 1, f"timeout: no answer within {_TIMEOUT:.0f} s"
        if code == 0:
            return run.stdout
        cause = cause_of(last_words(message))
        if wait is None or cause is None or not cause.transient:
            break
        time.sleep(wait)
    problem = cause.problem if cause else "skopeo cannot read the image"
    said = scrub(last_words(message)) or f"exit code {code}"
    raise UserError(problem, where=where, found=said, remedy=cause.remedy if cause else None)
