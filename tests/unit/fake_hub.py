"""A hub on loopback that speaks the few requests which huggingface_hub makes for a download."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from serve_repro.weights.locate import hub_name

REVISION = "a" * 40
LARGE = 1000
"""From how many bytes on a file is a large one, which has a sha256 as its ETag."""


class FakeHub:
    """One model, org/tiny, at one revision; what it was asked for, and how it may misbehave."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[tuple[str, str, str | None]] = []
        """(method, path, Range)"""
        self.tokens: set[str | None] = set()
        self.gated = False
        self.cut: dict[str, int] = {}
        """{file: bytes after which the connection breaks}; each break is used up if `cut_once`."""
        self.cut_once = True
        self.sent: dict[str, bytes] = {}
        """{file: other bytes of the same size that are sent in its place}"""
        self.url = ""

    def etag(self, name: str) -> str:
        """As the hub makes them."""
        content = self.files[name]
        if len(content) >= LARGE:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - git's

    def entry(self, name: str) -> dict[str, Any]:
        """A line of the list of files."""
        size, etag = len(self.files[name]), self.etag(name)
        large = {"lfs": {"oid": etag, "size": size, "pointerSize": 130}} if size >= LARGE else {}
        return {"type": "file", "path": name, "size": size, "oid": etag[:40], **large}

    def gets(self, name: str) -> list[str | None]:
        """The Range of each GET of a file."""
        return [span for method, path, span in self.asked if method == "GET" and path.endswith(name)]


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub listens on a free port of loopback."""

    class Handler(_Handler):
        fake = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    fake: FakeHub

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path, hub = self.path.partition("?")[0], self.fake
        hub.asked.append((self.command, path, self.headers["Range"]))
        hub.tokens.add(self.headers["Authorization"])
        if hub.gated:
            return self.refuse(403, "GatedRepo")
        if not path.removeprefix("/api/models").startswith("/org/tiny/"):
            return self.refuse(404, "RepoNotFound")
        if not re.search(rf"/({REVISION}|main)(/|$)", path):
            return self.refuse(404, "RevisionNotFound")
        if path.startswith("/api/models/org/tiny/revision/"):
            siblings = [{"rfilename": n, "size": len(c)} for n, c in hub.files.items()]
            return self.say({"id": "org/tiny", "sha": REVISION, "siblings": siblings})
        if path.startswith("/api/models/org/tiny/tree/"):
            return self.say([hub.entry(name) for name in hub.files])
        return self.file(path.rpartition("/")[2], body=body)

    def file(self, name: str, *, body: bool) -> None:
        hub = self.fake
        content = hub.sent.get(name, hub.files[name])
        first = int((self.headers["Range"] or "bytes=0-")[6:].partition("-")[0])
        part = content[first:]
        self.send_response(206 if first else 200)
        self.send_header("ETag", f'"{hub.etag(name)}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(len(part)))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if body:
            end = hub.cut.get(name)
            if end is not None and hub.cut_once:
                del hub.cut[name]
            self.wfile.write(part if end is None else part[: max(end - first, 0)])

    def say(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", f"{code} of {hub_name('org/tiny')}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's own name
        """Say nothing."""
