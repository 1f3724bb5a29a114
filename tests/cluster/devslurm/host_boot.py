"""The init of one simulated host: process 1 of its own UTS, mount and PID namespaces.

Run as a program by `unshare`, which has made the namespaces. It gives the host its name and its
/etc, starts one daemon, collects orphans, and ends when the daemon ends; the kernel then ends
everything else in the host. Nothing it does is seen outside.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path
from types import FrameType

CGROUP_ROOT = Path("/sys/fs/cgroup")
_NULL_DEVICE = os.makedev(1, 3)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _make_devices(folder: Path, count: int) -> None:
    """Put gpu0.. into a file system of this host's own: they vanish with it, even in a crash."""
    _mount("-t", "tmpfs", "-o", "mode=755,size=64k", "devslurm", folder)
    for number in range(count):
        # Twins of /dev/null: Slurm looks whether they exist, nothing ever opens them.
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o666, _NULL_DEVICE)


def _mount_cgroups(controllers: list[str]) -> None:
    """Show this host its own part of each cgroup v1 hierarchy as if it were the whole."""
    _mount("-t", "tmpfs", "-o", "mode=755,size=64k", "devslurm", CGROUP_ROOT)
    for controller in controllers:
        (CGROUP_ROOT / controller).mkdir()
        _mount("-t", "cgroup", "-o", controller, "devslurm", CGROUP_ROOT / controller)


def _run(command: list[str]) -> int:
    """Run the daemon, pass TERM on to it, collect orphans; return the daemon's exit code."""
    # Python ignores SIGPIPE; a daemon, and the jobs that it starts, must not.
    daemon = os.posix_spawnp(command[0], command, os.environ, setsigdef=(signal.SIGPIPE,))

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, number)

    signal.signal(signal.SIGTERM, forward)
    while True:
        pid, status = os.wait()
        if pid == daemon:
            return os.waitstatus_to_exitcode(status)


def main() -> int:
    """Set up the host and stay until its daemon ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hostname", required=True)
    parser.add_argument("--hosts", type=Path, required=True, help="becomes /etc/hosts")
    parser.add_argument("--etc", type=Path, required=True, help="becomes /etc/slurm")
    parser.add_argument("--devices", type=Path, help="folder for GPU device nodes")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--cgroup", action="append", default=[], metavar="CONTROLLER")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    socket.sethostname(options.hostname)
    _mount("--bind", options.hosts, "/etc/hosts")
    _mount("--bind", options.etc, "/etc/slurm")
    if options.devices and options.gpus:
        _make_devices(options.devices, options.gpus)
    if options.cgroup:
        _mount_cgroups(options.cgroup)
    code = _run(options.command)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    raise SystemExit(main())
