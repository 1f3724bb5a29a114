"""Start and end one simulated host: a daemon in namespaces of its own, see host_boot.py."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from devslurm import cgroups, processes
from devslurm.errors import ClusterError
from devslurm.packages import SEARCH_PATH
from devslurm.spec import ClusterSpec, Layout, Ports

_BOOT = Path(__file__).with_name("host_boot.py")
_CAP_SYS_ADMIN = 21  # linux/capability.h


def require_privileges() -> None:
    """Raise ClusterError if this process may not make namespaces and mounts."""
    if os.geteuid() != 0:
        raise ClusterError(f"must run as root, found uid {os.geteuid()}: nodes get hostnames and mounts")
    effective = Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0]
    if not int(effective, 16) >> _CAP_SYS_ADMIN & 1:
        raise ClusterError("root lacks CAP_SYS_ADMIN, as in a plain container; run it with --privileged")


def daemon_environment(layout: Layout) -> dict[str, str]:
    """Return what daemons inherit: nothing of a Slurm job that this program may run in."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("SLURM")}
    # libmariadb's way to find a database that is not at the usual place.
    return kept | {"PATH": SEARCH_PATH, "MYSQL_UNIX_PORT": str(layout.database / "socket")}


def _boot(hostname: str, layout: Layout, options: Sequence[str], daemon: list[str]) -> list[str]:
    """Return the command that makes a host and starts `daemon` in it.

    UTS, mount and PID namespaces: own name, own /etc/hosts, own /etc/slurm, and one signal to end
    it all. The network stays the machine's: hosts differ by their 127.x address only.
    """
    return [
        *("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
        *(sys.executable, "-I", "-S", str(_BOOT), "--hostname", hostname),
        *("--hosts", str(layout.hosts), "--etc", str(layout.etc), *options, "--", *daemon),
    ]


def start(layout: Layout, name: str, hostname: str, daemon: list[str]) -> processes.Process:
    """Start a host whose only duty is `daemon`; its record and log are called `name`."""
    return processes.spawn(
        layout.pid(name),
        _boot(hostname, layout, [], daemon),
        layout.logs / f"{name}.out",
        daemon_environment(layout),
    )


def start_node(layout: Layout, spec: ClusterSpec, ports: Ports, number: int) -> None:
    """Start node `number` with its GPUs and slurmd."""
    name = f"node{number}"
    options = ["--devices", str(layout.devices), "--gpus", str(spec.gpus)]
    prefix: list[str] = []
    if spec.cgroup:
        for controller in cgroups.CONTROLLERS:
            options += ["--cgroup", controller]
        prefix = cgroups.enter(cgroups.create(ports, name))
    (layout.spool / name).mkdir(exist_ok=True)
    processes.spawn(
        layout.pid(name),
        [*prefix, *_boot(name, layout, options, ["slurmd", "-D", "-N", name])],
        layout.logs / f"{name}.out",
        daemon_environment(layout),
    )


def is_up(layout: Layout, name: str) -> bool:
    """Tell whether the host or plain daemon `name` runs."""
    return processes.is_alive(processes.recorded(layout.pid(name)))


def cut_power(layout: Layout, name: str) -> None:
    """End host `name` and all that runs in it, without a word to anyone in it.

    Raise ClusterError if the kernel has not cleared it away within 10 s.
    """
    outer = processes.recorded(layout.pid(name))
    init = processes.only_child(outer) if outer else None
    # unshare takes its child along (--kill-child), the child its PID namespace.
    for process in (outer, init):
        if not processes.end(process, signal.SIGKILL, timeout_s=10):
            raise ClusterError(f"{name}: pid {process and process.pid} survives SIGKILL")
    layout.pid(name).unlink(missing_ok=True)


def shut_down(layout: Layout, name: str, timeout_s: float = 10) -> None:
    """Let the daemon of host `name` save its state; cut the power after `timeout_s` seconds."""
    outer = processes.recorded(layout.pid(name))
    init = processes.only_child(outer) if outer else None
    processes.end(init, signal.SIGTERM, timeout_s)
    cut_power(layout, name)
