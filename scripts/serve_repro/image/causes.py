"""Why a registry or an engine could not do it, told by its words, and what a person can do."""

from __future__ import annotations

import re
from typing import NamedTuple


class Cause(NamedTuple):
    """A kind of failure."""

    signs: tuple[str, ...]
    problem: str
    remedy: str
    transient: bool
    """Whether trying again may help."""


LOGIN = Cause(
    (
        "unauthorized",
        "authentication required",
        "no basic auth credentials",
        "denied",
        "status: 401",
        "status: 403",
        "error code: 401",
        "error code: 403",
    ),
    "the registry wants a login, or there is no such repository",
    "skopeo login <registry>, as the user who runs this; or compare the reference",
    transient=False,
)
"""Each engine looks for a login in places of its own."""

# The first that fits counts: a registry that asks one to wait may also say "denied", and what is
# wrong with this node or these bytes comes before what may be wrong with the way.
CAUSES = (
    Cause(
        ("no space left on device", "disk quota exceeded"),
        "the disk is full",
        "free space where this engine keeps its images, then run again",
        transient=False,
    ),
    Cause(
        (
            "digest did not match",
            "verification failed",
            "verifying sha256 checksum",
            "does not match digest",
            "digest mismatch",
            "unexpected commit digest",
            "checksum mismatch",
            "corrupted",
        ),
        "the registry sends wrong bytes for a part of this image",
        "push the image to that registry again, or use another mirror; nothing was kept",
        transient=False,
    ),
    Cause(
        ("toomanyrequests", "too many requests", "status: 429", "429 ", "error code: 429"),
        "the registry asks to wait: too many requests",
        "wait, or log in: logged-in users may ask more often",
        transient=True,
    ),
    Cause(
        ("manifest unknown", "name unknown", "repository name not known", "error code: 404"),
        "the registry has no such image or tag",
        "compare the recipe's image.reference with the registry; nightly tags are removed after a while",
        transient=False,
    ),
    LOGIN,
    Cause(
        (
            "connection refused",
            "connection reset",
            "broken pipe",
            "no such host",
            "server misbehaving",
            "temporary failure in name resolution",
            "network is unreachable",
            "no route to host",
            "timeout",
            "deadline exceeded",
            "eof",
            "status: 5",
            "bad gateway",
            "service unavailable",
            "error code: 5",
            "empty reply from server",
            "transfer closed",
            "recv failure",
            "failed to connect",
            "could not resolve host",
        ),
        "the registry cannot be reached",
        "look at the network and the proxy of this machine, then run again",
        transient=True,
    ),
)


def cause_of(message: str) -> Cause | None:
    """The kind of a failure."""
    # Names are no signs: a tag may be called "timeout", and a digest may hold any digits.
    names = r"docker://\S+|https?://[^\s\"\\]+|manifest \S+ in \S+|sha256:[0-9a-f]+"
    said = re.sub(names, "", message.lower())
    return next((cause for cause in CAUSES if any(sign in said for sign in cause.signs)), None)


def last_words(message: str) -> str:
    """The last line of a message, out of a log's quotes."""
    last = (message.strip().splitlines() or [""])[-1]
    quoted = re.search(r'msg="(.*)"$', last)
    return quoted[1].replace('\\"', '"') if quoted else last


def retry_after_s(message: str) -> float | None:
    """Seconds that a registry asked one to wait, where an engine repeats that."""
    found = re.search(r"retry-after:\s*([0-9.]+)\s*(ms|s|m)?\b", message.lower())
    return float(found[1]) * {"ms": 0.001, "m": 60.0}.get(found[2], 1.0) if found else None


def scrub(text: str) -> str:
    """A message without what may be secret: queries, credentials, tokens."""
    text = re.sub(r"://[^/\s@]+@", "://***@", text)
    text = re.sub(r"\?[^\s\"']+", "?***", text)
    text = re.sub(r"(?i)\b(bearer|basic)\s+[^\s\"',]+", r"\1 ***", text)
    key = r"(?i)(\w*(?:token|password|secret|signature)\w*[\"']?\s*[:=]\s*[\"']?)[^\s\"',]+"
    text = re.sub(key, r"\1***", text)
    return re.sub(r"\beyJ[\w-]+(\.[\w-]+)*", "***", text)
