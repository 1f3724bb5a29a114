"""The edge that every program shares: its log, and an error without a traceback."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from serve_repro.errors import UserError

LOGGER = logging.getLogger("serve_repro")


def parser(description: str) -> argparse.ArgumentParser:
    """An argument parser with the one option that all programs have, `--log FILE`."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--log", type=Path, help="also write the messages to this file")
    return made


def log_to(path: Path | None) -> None:
    """Send messages to the terminal and, where a path is given, to that file as well."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=handlers
    )


def run(main: Callable[[argparse.Namespace], int | None], arguments: argparse.Namespace) -> None:
    """Run a program's main and exit: 0 done, 1 a mistake (told in full), 130 interrupted."""
    log_to(arguments.log)
    try:
        code = main(arguments) or 0
    except UserError as error:
        LOGGER.error("error: %s", error)
        code = 1
    except KeyboardInterrupt:
        LOGGER.error("interrupted")
        code = 130
    except Exception:
        # A defect of ours: its traceback belongs in the rule's log too, not just on the terminal.
        LOGGER.exception("this is a defect in the program, please report it:")
        code = 70
    sys.exit(code)
