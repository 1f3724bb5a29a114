"""An OpenAI server that speaks as vLLM does, at a fixed pace, and can go wrong in one chosen way.

It takes vLLM's command line. MOCK_FAULT in its environment is a JSON object:

    kind     which fault ; absent: none
    every    each how many-th request of the window meets it (default 1)
    after_s  seconds of the window before it begins (default 0)
    for_s    seconds that it lasts (default: to the end)
    always   true: from before the window on

The window begins with the first request for more tokens than warm-up and readiness ask for.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

READINESS_TOKENS = 8
"""Most tokens of a request that is not of the window."""

ROOT_TOKENS = 600
"""Fewest tokens of a root's prompt in the made traces; a subagent begins with fewer."""

FIRST_TOKEN_S, NEXT_TOKEN_S = 0.02, 0.004


class State:
    """What has happened so far, and which fault is due."""

    def __init__(self, options: argparse.Namespace, fault: dict[str, Any]) -> None:
        self.name: str = options.served_model_name
        self.length: int = options.max_model_len
        self.fault = fault
        self.lock = threading.Lock()
        self.begun: float | None = None
        self.requests = self.prompt = self.generated = self.running = 0

    def due(self, tokens: int, prompt: int) -> str | None:
        """The kind of fault that this request meets."""
        if self.fault.get("kind") == "subagents_warmup":
            return "status_500" if tokens == 1 and prompt < ROOT_TOKENS else None
        with self.lock:
            if tokens <= READINESS_TOKENS:
                return None
            self.begun = self.begun or time.monotonic()
            self.requests += 1
            hit = self.requests % self.fault.get("every", 1) == 0
        return self.fault.get("kind") if hit and self.active() else None

    def active(self) -> bool:
        """Whether now is the time of the fault."""
        if self.fault.get("always"):
            return True
        if self.begun is None:
            return False
        since = time.monotonic() - self.begun - float(self.fault.get("after_s", 0))
        return 0 <= since < float(self.fault.get("for_s", "inf"))

    def count(self, prompt: int, generated: int) -> None:
        """Add to the server's own counters."""
        share = 0.5 if self.fault.get("kind") == "counters_half" and self.active() else 1
        with self.lock:
            self.prompt += prompt
            self.generated += int(generated * share)

    def metrics(self) -> str:
        """/metrics, under vLLM's names."""
        kind = self.fault.get("kind")
        name = "someone/else" if kind == "other_model" and self.active() else self.name
        labels = f'{{engine="0",model_name="{name}"}}'
        rows = [
            ("vllm:prompt_tokens_total", "counter", self.prompt),
            ("vllm:generation_tokens_total", "counter", self.generated),
            ("vllm:prefix_cache_queries_total", "counter", self.prompt),
            ("vllm:prefix_cache_hits_total", "counter", self.prompt // 2),
            ("vllm:num_requests_running", "gauge", self.running),
            ("vllm:num_requests_waiting", "gauge", 0),
            ("vllm:kv_cache_usage_perc", "gauge", 0.1),
        ]
        told = [f"# TYPE {name} {kind}\n{name}{labels} {value}\n" for name, kind, value in rows]
        info = 'vllm:cache_config_info{enable_prefix_caching="True"} 1\n'
        return "".join([*told, "# TYPE vllm:cache_config_info gauge\n", info])


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    state: State

    def do_HEAD(self) -> None:
        self._whole(404 if self._metrics_gone() else 200, "")

    def do_GET(self) -> None:
        """/health, /v1/models, /metrics."""
        if self.path == "/metrics":
            gone = self._metrics_gone()
            self._whole(404 if gone else 200, "" if gone else self.state.metrics())
        elif self.path == "/v1/models":
            entry = {"id": self.state.name, "max_model_len": self.state.length}
            self._whole(200, json.dumps({"object": "list", "data": [entry]}))
        else:
            self._whole(200, "")

    def _metrics_gone(self) -> bool:
        kind = self.state.fault.get("kind")
        return self.path == "/metrics" and kind == "metrics_gone" and self.state.active()

    def do_POST(self) -> None:
        """A chat completion."""
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        tokens = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        prompt = max(size // 4, 1)
        fault = self.state.due(tokens, prompt)
        if fault == "status_500":
            self._whole(500, json.dumps({"error": {"message": "made", "type": "server_error"}}))
            return
        tokens = {"half": tokens // 2, "zero": 0}.get(fault or "", tokens)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
        }
        with self.state.lock:
            self.state.running += 1
        try:
            if body.get("stream"):
                self._stream(tokens, usage, fault)
            else:
                self.state.count(prompt, tokens)
                self._whole(200, json.dumps({"object": "chat.completion", "usage": usage}))
        finally:
            with self.state.lock:
                self.state.running -= 1

    def _stream(self, tokens: int, usage: dict[str, int], fault: str | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(FIRST_TOKEN_S)
        for number in range(tokens):
            self._event(self._chunk({"content": " the"}))
            time.sleep(NEXT_TOKEN_S)
            if number < tokens // 2 or fault is None:
                continue
            if fault == "cut":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if fault == "sse_error":
                self._event({"error": {"message": "made", "type": "InternalServerError", "code": 500}})
                self._done()
                return
            if fault == "hang":
                self.state.count(usage["prompt_tokens"], number)
                while not self.connection.recv(1):  # nothing more comes, until the client gives up
                    return
        self.state.count(usage["prompt_tokens"], tokens)
        self._event(self._chunk({}, "length"))
        self._event(self._chunk(None) | {"usage": usage})
        self._done()

    def _chunk(self, delta: dict[str, str] | None, reason: str | None = None) -> dict[str, Any]:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
        return {
            "id": "c",
            "object": "chat.completion.chunk",
            "model": self.state.name,
            "choices": choices,
        }

    def _event(self, content: dict[str, Any] | str) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        data = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _done(self) -> None:
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _whole(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if text.startswith("{") else "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own name
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Answers each connection in a thread; a client that goes away is no news."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of everything but a broken connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    """Serve until TERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--served-model-name")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    options, _ = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Handler.state = State(options, json.loads(os.environ.get("MOCK_FAULT", "{}")))
    print("rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0", flush=True)
    Server((options.host, options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
