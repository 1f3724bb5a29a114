"""The server's HTTP interface, as far as the launcher needs it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any


class NoAnswer(Exception):
    """Nobody answered, or not in time."""


def get(url: str, timeout_s: float) -> tuple[int, str]:
    """(status, body) of a GET.

    Raises:
        NoAnswer: no connection, a broken one, or no answer in time.
    """
    return _send(urllib.request.Request(url), timeout_s)


def complete(base: str, model: str, prompt: str, tokens: int, timeout_s: float) -> dict[str, Any]:
    """One chat completion of exactly `tokens` tokens; returns the whole answer.

    Raises:
        NoAnswer: as `get`, or an answer other than 200, or one that is no JSON object.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"{base}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    status, text = _send(request, timeout_s)
    if status != 200:
        raise NoAnswer(f"status {status}: {text[:300]}")
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise NoAnswer(f"not JSON: {text[:300]}") from error
    if not isinstance(answer, dict):
        raise NoAnswer(f"not an answer: {text[:300]}")
    return answer


def _send(request: urllib.request.Request, timeout_s: float) -> tuple[int, str]:
    # No proxy, whatever the environment says: the server is on this machine or a peer.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        raise NoAnswer(str(error)) from error
