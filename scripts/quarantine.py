"""Show which nodes of a site are in quarantine, and let one in again."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from serve_repro import program
from serve_repro.nodes import quarantine


def main(arguments: argparse.Namespace) -> None:
    """Print a site's list, or take a node off it."""
    path, now = quarantine.path_of(quarantine.FOLDER, arguments.site), datetime.now(UTC)
    if arguments.verb == "lift":
        quarantine.lift(path, arguments.node, now)
        program.LOGGER.info("node %s may serve again", arguments.node)
        return
    for node, entry in sorted(quarantine.entries(path, now).items()):
        print(f"{node}  until {entry['until']}  since {entry['since']}  {entry['reason']}")


if __name__ == "__main__":
    parser = program.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("list", "lift"):
        words = verbs.add_parser(verb)
        words.add_argument("site", help="name of the site")
        if verb == "lift":
            words.add_argument("node")
    program.run(main, parser.parse_args())
