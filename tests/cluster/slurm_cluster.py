#!/usr/bin/env python3
"""Start, break and stop a Slurm cluster on this machine, for development and tests.

python tests/cluster/slurm_cluster.py install
python tests/cluster/slurm_cluster.py up --state /tmp/slurm --nodes 2 --gpus 8 --cpus 16
eval "$(python tests/cluster/slurm_cluster.py env --state /tmp/slurm)"; srun -N2 hostname
python tests/cluster/slurm_cluster.py down --state /tmp/slurm

From Python: `from slurm_cluster import SlurmCluster`, then `with SlurmCluster(folder) as cluster:`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import fields
from types import FrameType

from devslurm import ClusterError, ClusterSpec, SlurmCluster, packages

__all__ = ["ClusterError", "ClusterSpec", "SlurmCluster"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        if name != "install":
            command.add_argument("--state", required=True, metavar="DIR", help="state directory")
        return command

    up = add("up", "start a cluster and wait until its nodes are idle")
    spec = ClusterSpec()
    for option, default, text in (
        ("nodes", spec.nodes, "number of nodes"),
        ("gpus", spec.gpus, "GPUs of each node, 0 for none"),
        ("cpus", spec.cpus, "CPUs of each node"),
        ("memory-mb", spec.memory_mb, "memory of each node, MiB"),
        ("node-timeout-s", spec.node_timeout_s, "silence after which a node is DOWN"),
        ("message-timeout-s", spec.message_timeout_s, "patience for an answer"),
        ("kill-wait-s", spec.kill_wait_s, "time from TERM to KILL"),
    ):
        up.add_argument(f"--{option}", type=int, default=default, help=f"{text} (default %(default)s)")
    up.add_argument("--cgroup", action="store_true", help="steps in cgroup v1, real OOM kills")
    install = add("install", "install the Debian packages with apt-get")
    for command in (up, install):
        command.add_argument("--accounting", action="store_true", help="slurmdbd and MariaDB, for sacct")
    add("down", "end everything that `up` started; only logs stay")
    add("status", "show processes and nodes")
    add("env", "print what a client shell must export")
    run = add("exec", "run a client command in that environment")
    run.add_argument("client", nargs=argparse.REMAINDER, metavar="-- CMD")
    for name, text in (
        ("kill-node", "cut the power of node N"),
        ("start-node", "start node N again"),
    ):
        add(name, text).add_argument("node", type=int, metavar="N")
    add("restart-controller", "restart slurmctld, jobs go on")
    return parser


def _execute(cluster: SlurmCluster, client: list[str]) -> None:
    """Become the client command."""
    words = client[1:] if client[:1] == ["--"] else client
    if not words:
        raise ClusterError("exec: no command given after --")
    try:
        os.execvpe(words[0], words, cluster.client_environment())
    except FileNotFoundError:
        raise ClusterError(f"exec: no program {words[0]!r}") from None


def _run(options: argparse.Namespace) -> None:
    if options.command == "install":
        packages.install(options.accounting)
        return
    size = {}
    if options.command == "up":
        size = {
            f.name: getattr(options, f.name) for f in fields(ClusterSpec) if hasattr(options, f.name)
        }
    cluster = SlurmCluster(options.state, **size)
    match options.command:
        case "up":
            cluster.up()
        case "down":
            cluster.down()
        case "status":
            print(cluster.status())
        case "env":
            for name, text in cluster.environment().items():
                print(f"export {name}={shlex.quote(text)}")
        case "exec":
            _execute(cluster, options.client)
        case "kill-node":
            cluster.kill_node(options.node)
        case "start-node":
            cluster.start_node(options.node)
        case "restart-controller":
            cluster.restart_controller()


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """Run one command; return 1 with a message on stderr if it cannot be done."""
    options = _parser().parse_args()
    # An exception, so that `up` takes down what it has started so far.
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGHUP, _exit)
    try:
        _run(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (ClusterError, subprocess.TimeoutExpired) as error:
        print(f"slurm_cluster.py {options.command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
