"""Speaks vLLM's command line, log lines and HTTP interface as far as the launcher looks at them.

STUB_BOOT_S: seconds until the API answers. STUB_ALLOCATE_MB: memory that rank 1 fills once serving.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROMPT_TOKENS = 10


class Counters:
    """What /metrics tells."""

    lock = threading.Lock()
    prompt = 0
    generated = 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--served-model-name")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--nnodes", type=int, default=1)
    options, _ = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"rank {options.node_rank} in world size {options.nnodes} is assigned", flush=True)
    if options.node_rank:
        hold(int(os.environ.get("STUB_ALLOCATE_MB", "0")))
    time.sleep(float(os.environ.get("STUB_BOOT_S", "0.5")))
    print("Application startup complete", flush=True)
    server = ThreadingHTTPServer((options.host, options.port), handler(options))
    server.daemon_threads = True
    server.serve_forever()


def hold(megabytes: int) -> None:
    """A headless rank: nothing to do but to be there."""
    time.sleep(2 if megabytes else 0)
    held = [bytearray(b"x" * (1 << 20)) for _ in range(megabytes)]
    print(f"holding {len(held)} MB", flush=True)
    while True:
        signal.pause()


def handler(options: argparse.Namespace) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                entry = {"id": options.served_model_name, "max_model_len": options.max_model_len}
                self.answer(json.dumps({"data": [entry]}))
            elif self.path == "/metrics":
                self.answer(metrics(options.served_model_name))
            else:
                self.answer("")

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            tokens = json.loads(self.rfile.read(length))["max_tokens"]
            with Counters.lock:
                Counters.prompt += PROMPT_TOKENS
                Counters.generated += tokens
            usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens}
            self.answer(json.dumps({"usage": usage}))

        def answer(self, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def metrics(model: str) -> str:
    return (
        "# TYPE vllm:prompt_tokens_total counter\n"
        f'vllm:prompt_tokens_total{{model_name="{model}"}} {Counters.prompt}\n'
        "# TYPE vllm:generation_tokens_total counter\n"
        f'vllm:generation_tokens_total{{model_name="{model}"}} {Counters.generated}\n'
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{enable_prefix_caching="True"} 1\n'
    )


if __name__ == "__main__":
    main()
