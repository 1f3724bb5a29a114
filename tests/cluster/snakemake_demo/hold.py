"""Stay for some seconds, deaf to all signals but KILL, and write each one down (for NOTES.md)."""

from __future__ import annotations

import signal
import socket
import sys
import time
from types import FrameType


def _write(text: str) -> None:
    print(f"{time.time():.2f} {socket.gethostname()} {text}", file=sys.stderr, flush=True)


def _note(number: int, _frame: FrameType | None) -> None:
    _write(signal.Signals(number).name)


def main() -> None:
    """Sleep for the seconds given as the first argument, in small pieces."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCONT):
        signal.signal(number, _note)
    _write("started")
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        time.sleep(0.5)
        _write("alive")
    _write("end")


if __name__ == "__main__":
    main()
