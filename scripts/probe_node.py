"""Look at this node for a point, then answer each line of standard input with this node's clock."""

from __future__ import annotations

import json
import sys
import time

from serve_repro.nodes.probe import look

if __name__ == "__main__":
    print(json.dumps(look(json.loads(sys.argv[1]))._asdict()), flush=True)
    for _ in sys.stdin:
        print(json.dumps(time.time()), flush=True)
