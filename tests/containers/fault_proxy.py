"""A proxy before the registry that does wrong what it is told to, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

PIECE = 65536
_HOP = ("connection", "transfer-encoding", "keep-alive", "host")


@dataclass
class Fault:
    """What is done to the requests that match."""

    mode: Literal["status", "cut", "flip", "slow"]
    match: str = "GET .*/blobs/"
    times: int = 10**9
    """How many requests suffer it; the later ones pass."""
    status: int = 429
    after: int = 0
    """Byte of the body at which it is cut or flipped."""
    rate: float = 1e6
    """Bytes a second when slow."""


@dataclass
class FaultProxy:
    """Listens on a free loopback port."""

    upstream: str
    fault: Fault | None = None
    requests: list[str] = field(default_factory=list)
    """"METHOD path" of every request."""
    body_bytes: int = 0
    """Bytes of blobs that were passed on."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def chosen(self, line: str) -> Fault | None:
        """The fault that this request suffers."""
        with self.lock:
            self.requests.append(line)
            fault = self.fault
            if fault is None or not re.search(fault.match, line) or fault.times < 1:
                return None
            fault.times -= 1
            return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def do_GET(self) -> None:
        fault = self.proxy.chosen(f"{self.command} {self.path}")
        if fault and fault.mode == "status":
            self.refuse(fault.status)
            return
        upstream = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            # Several Accept lines count as one list.
            accepted = self.headers.get_all("Accept")
            headers |= {"Accept": ", ".join(accepted)} if accepted else {}
            upstream.request(self.command, self.path, headers=headers)
            answer = upstream.getresponse()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in _HOP:
                    self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.pass_on(answer, fault)
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # as a registry that has died: no answer, or half of one
            with contextlib.suppress(OSError):
                self.connection.shutdown(2)
        finally:
            upstream.close()

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def refuse(self, status: int) -> None:
        code = {429: "TOOMANYREQUESTS", 401: "UNAUTHORIZED"}.get(status, "UNKNOWN")
        body = json.dumps({"errors": [{"code": code, "message": "made up"}]}).encode()
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def pass_on(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        done, began = 0, time.monotonic()
        while piece := answer.read(PIECE):
            if fault and fault.mode == "slow":
                time.sleep(max(0, done / fault.rate - (time.monotonic() - began)))
            if fault and fault.mode == "cut" and done + len(piece) > fault.after:
                self.wfile.write(piece[: max(0, fault.after - done)])
                raise ConnectionResetError
            if fault and fault.mode == "flip" and done <= fault.after < done + len(piece):
                broken = bytearray(piece)
                broken[fault.after - done] ^= 1
                piece = bytes(broken)
            self.wfile.write(piece)
            done += len(piece)
            with self.proxy.lock:
                self.proxy.body_bytes += len(piece)
        if answer.length:
            raise ConnectionResetError  # the registry ended in the middle

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """A proxy before a registry, gone at the end."""
    proxy = FaultProxy(upstream)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients may hang up
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
