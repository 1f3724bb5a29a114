"""A small HTTP server that answers as vLLM's API does, or fails to in one chosen way.

Words: a JSON object with the behaviour; it prints its port once it listens.

    health      status of /health; or the path of a file: 503 until it is there
    models      list that /v1/models gives
    completion  the answer as JSON; a number: that status; "hang": no answer; any other text: as it is
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BEHAVIOUR: dict[str, Any] = {}


class Handler(BaseHTTPRequestHandler):
    """Answers by BEHAVIOUR."""

    def do_GET(self) -> None:
        """/health and /v1/models."""
        if self.path == "/health":
            health = BEHAVIOUR["health"]
            ready = health == 200 if isinstance(health, int) else Path(health).exists()
            self.answer(200 if ready else 503, "")
        else:
            self.answer(200, json.dumps({"data": BEHAVIOUR["models"]}))

    def do_POST(self) -> None:
        """A completion."""
        self.rfile.read(int(self.headers["Content-Length"]))
        wanted = BEHAVIOUR["completion"]
        if wanted == "hang":
            time.sleep(60)
        elif isinstance(wanted, int):
            self.answer(wanted, "EngineDeadError")
        else:
            self.answer(200, wanted if isinstance(wanted, str) else json.dumps(wanted))

    def answer(self, status: int, body: str) -> None:
        """One whole answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's own name
        """Say nothing."""


if __name__ == "__main__":
    BEHAVIOUR.update(json.loads(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
