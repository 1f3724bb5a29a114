"""Hold one rank on this node for as long as standard input stays open. Started by replay.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from serve_repro.launch.holder import Holder

if __name__ == "__main__":
    sys.exit(Holder(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))).hold())
