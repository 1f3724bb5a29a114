"""The cluster as a whole: up, down, failures on purpose, and commands for it.

All that is known about a running cluster lies in its state directory, so any process can go on
where another one left off, or was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devslurm import accounting, cgroups, config, hosts, network, packages, processes
from devslurm.errors import ClusterError
from devslurm.spec import ClusterSpec, Layout, Ports, load, save

CONTROLLER = "slurmctld"
_START_TIMEOUT_S = 30.0
_LOCK_TIMEOUT_S = 2.0
_LOG_TAIL_LINES = 15


class SlurmCluster:
    """A Slurm cluster below one state directory, up within `with`.

    `size` is what ClusterSpec takes, and counts for `up` only. Methods raise ClusterError.
    """

    def __init__(self, state: Path | str, **size: Any) -> None:
        self.layout = Layout.at(state)
        self._wanted = ClusterSpec(**size)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @property
    def spec(self) -> ClusterSpec:
        """The size of the cluster that is up."""
        return load(self.layout)[0]

    @property
    def ports(self) -> Ports:
        """The ports and addresses of the cluster that is up."""
        return load(self.layout)[1]

    # Life

    def up(self) -> None:
        """Start all daemons and wait until every node is idle; on any failure leave nothing."""
        hosts.require_privileges()
        packages.require(self._wanted.accounting)
        if self._wanted.cgroup:
            cgroups.require()
        self.layout.state.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._refuse_used_directory()
            ports = network.choose_ports(self._wanted.nodes)
            save(self.layout, self._wanted, ports)
            try:
                self._write_files(ports)
                self._start_all(ports)
            except BaseException:
                self._end_all()
                raise

    def down(self) -> None:
        """Cancel all jobs, end every process, remove all but the logs; no cluster is no error."""
        if self.layout.state.is_dir():
            with self._locked():
                self._end_all()

    def kill_node(self, number: int) -> None:
        """Cut the power of a node: all its processes die at once, and the controller must notice.

        That takes it about message_timeout_s + 1.5 x node_timeout_s.
        """
        with self._locked():
            self._require_node(number, running=True)
            hosts.cut_power(self.layout, f"node{number}")

    def start_node(self, number: int) -> None:
        """Start a node again after kill_node and wait until the controller has it back."""
        with self._locked():
            self._require_node(number, running=False)
            spec, ports = load(self.layout)
            hosts.start_node(self.layout, spec, ports, number)
        self._wait(lambda: self._responds(number), f"node{number} to come up", _START_TIMEOUT_S)

    def restart_controller(self) -> None:
        """Stop slurmctld, which saves its state, and start it again; jobs go on meanwhile."""
        with self._locked():
            load(self.layout)
            hosts.shut_down(self.layout, CONTROLLER)
            self._start_controller()

    # Use

    def environment(self) -> dict[str, str]:
        """Return what a client outside of the nodes needs in its environment."""
        load(self.layout)
        return {"SLURM_CONF": str(self.layout.slurm_conf)}

    def client_environment(self) -> dict[str, str]:
        """Return the whole environment for a client: this one's, without another cluster's."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("SLURM")}
        return kept | self.environment()

    def run(self, *command: str, timeout_s: float = 30) -> str:
        """Run a client command and return its output; its failure is a ClusterError."""
        done = subprocess.run(
            # A client that waits for an answer must not outlive a killed caller.
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            env=self.client_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise ClusterError(
                f"`{' '.join(command)}` ended with exit code {done.returncode}: "
                f"{(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def node_state(self, number: int) -> str:
        """Return scontrol's words for a node, such as IDLE or DOWN+NOT_RESPONDING.

        Not sinfo's: while it is asked often, it goes on to call a node `mixed` that is down.
        """
        for field in self.run("scontrol", "show", "node", f"node{number}").split():
            if field.startswith("State="):
                return field.removeprefix("State=")
        raise ClusterError(f"scontrol shows no state for node{number}")

    def wait_for_node(self, number: int, state: str, timeout_s: float) -> None:
        """Wait until the first word of node_state is `state`."""
        self._wait(
            lambda: self.node_state(number).split("+")[0] == state,
            f"node{number} to be {state}",
            timeout_s,
        )

    def status(self) -> str:
        """Return a report for people: addresses, processes, and sinfo."""
        spec, ports = load(self.layout)
        lines = [f"node{n} {ports.address(n)}" for n in range(1, spec.nodes + 1)]
        for record in sorted(self.layout.pids.iterdir()):
            process = processes.recorded(record)
            alive = processes.is_alive(process)
            pid = process.pid if process else "?"
            lines.append(f"{record.name} pid {pid} {'runs' if alive else 'DEAD'}")
        with contextlib.suppress(ClusterError):
            lines.append(self.run("sinfo", "-N", "-o", "%N %T %c CPUs %m MiB %G %E").rstrip())
        return "\n".join(lines)

    # Inside

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the state directory itself, so that no lock file stays behind."""
        handle = os.open(self.layout.state, os.O_RDONLY)
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        # A little patience: when `up` is killed, a child that it has forked but that has not yet
        # become another program still holds the lock.
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"another command is at work on {self.layout.state}; wait or end it first"
                    ) from None
                time.sleep(0.05)

    def _refuse_used_directory(self) -> None:
        state = self.layout.state
        if self.layout.description.exists():
            raise ClusterError(
                f"a cluster is up in {state}, or a crash left one: run `down --state {state}` first"
            )
        others = sorted(p.name for p in state.iterdir() if p != self.layout.logs)
        if others:
            raise ClusterError(
                f"state directory {state} holds other files ({', '.join(others[:3])}); "
                "give an empty or new one"
            )

    def _require_node(self, number: int, running: bool) -> None:
        spec = self.spec
        if not 1 <= number <= spec.nodes:
            raise ClusterError(f"no node{number}: this cluster has node1 to node{spec.nodes}")
        if hosts.is_up(self.layout, f"node{number}") != running:
            raise ClusterError(f"node{number} is {'not ' if running else 'already '}running")

    def _write_files(self, ports: Ports) -> None:
        spec, layout = self._wanted, self.layout
        shutil.rmtree(layout.logs, ignore_errors=True)
        for folder in layout.folders():
            folder.mkdir(exist_ok=True)
        layout.slurm_conf.write_text(config.slurm_conf(layout, spec, ports))
        (layout.etc / "gres.conf").write_text(config.gres_conf(layout, spec))
        (layout.etc / "cgroup.conf").write_text(config.cgroup_conf(spec))
        layout.hosts.write_text(config.hosts(spec, ports, Path("/etc/hosts").read_text()))
        private = {layout.munge / "key": os.urandom(128)}
        if spec.accounting:
            # slurmdbd refuses a configuration that others may read.
            private[layout.etc / "slurmdbd.conf"] = config.slurmdbd_conf(layout, ports).encode()
        for path, content in private.items():
            path.touch(mode=0o600)
            path.write_bytes(content)

    def _start_all(self, ports: Ports) -> None:
        layout, spec = self.layout, self._wanted
        processes.spawn(
            layout.pid("munged"),
            [
                *("munged", "--foreground", "--force"),
                f"--key-file={layout.munge / 'key'}",
                f"--seed-file={layout.munge / 'seed'}",
                f"--socket={layout.munge_socket}",
                f"--pid-file={layout.munge / 'pid'}",
            ],
            layout.logs / "munged.out",
            hosts.daemon_environment(layout),
        )
        if spec.accounting:
            self._start_accounting()
        self._wait_alive(layout.munge_socket.exists, "munged's socket")
        self._start_controller()
        for number in range(1, spec.nodes + 1):
            hosts.start_node(layout, spec, ports, number)
        self._wait_alive(self._all_idle, f"{spec.nodes} nodes to be idle")

    def _start_accounting(self) -> None:
        accounting.create_database(self.layout)
        accounting.start_database(self.layout)
        self._wait_alive((self.layout.database / "socket").exists, "MariaDB's socket")
        accounting.start_daemon(self.layout)
        self._wait_alive(lambda: self._answers("sacctmgr", "-n", "list", "cluster"), "slurmdbd")
        add = ("sacctmgr", "-i", "-Q", "add")
        self.run(*add, "cluster", "dev")
        self.run(*add, "account", "dev", "Description=dev", "Organization=dev")
        self.run(*add, "user", "root", "Account=dev", "AdminLevel=Admin")

    def _start_controller(self) -> None:
        hosts.start(self.layout, CONTROLLER, config.CONTROLLER_HOST, ["slurmctld", "-D"])
        self._wait_alive(lambda: self._answers("sinfo", "-h"), "slurmctld")

    def _answers(self, *command: str) -> bool:
        try:
            self.run(*command)
        except ClusterError:
            return False
        return True

    def _responds(self, number: int) -> bool:
        state = self.node_state(number)
        return not state.startswith("DOWN") and "NOT_RESPONDING" not in state

    def _all_idle(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-o", "%T").split()
        return states == ["idle"] * self._wanted.nodes

    def _wait_alive(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for `ready`; a daemon that has died ends the wait at once."""

        def ready_and_alive() -> bool:
            if ready():
                return True
            for record in self.layout.pids.iterdir():
                if not processes.is_alive(processes.recorded(record)):
                    raise ClusterError(f"{record.name} has ended: {self._log_tail(record.name)}")
            return False

        self._wait(ready_and_alive, what, _START_TIMEOUT_S)

    def _log_tail(self, name: str) -> str:
        """Return the last lines of what a daemon wrote."""
        output = self.layout.logs / f"{name}.out"
        lines = output.read_text(errors="replace").splitlines() if output.exists() else []
        return "\n".join(lines[-_LOG_TAIL_LINES:]) or f"no output; see {self.layout.logs}"

    def _wait(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"waited {timeout_s:g} s in vain for {what}; logs: {self.layout.logs}"
                )
            time.sleep(0.05)

    def _cancel_jobs(self, timeout_s: float = 3) -> None:
        """Let jobs end with TERM if they do so in time; pulling the power ends the rest."""
        if not hosts.is_up(self.layout, CONTROLLER):
            return
        with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
            jobs = self.run("squeue", "-h", "-o", "%A", timeout_s=timeout_s).split()
            if jobs:
                self.run("scancel", *jobs, timeout_s=timeout_s)
                self._wait(lambda: not self.run("squeue", "-h"), "jobs to end", timeout_s)

    def _end_all(self) -> None:
        layout = self.layout
        layout.draft.unlink(missing_ok=True)
        if not layout.description.exists():
            return
        self._cancel_jobs()
        if layout.pids.is_dir():
            for record in sorted(layout.pids.iterdir()):
                hosts.cut_power(layout, record.name)
        spec, ports = load(layout)
        if spec.cgroup:
            cgroups.remove(ports)
        for folder in layout.folders():
            if folder != layout.logs:
                shutil.rmtree(folder, ignore_errors=True)
        layout.hosts.unlink(missing_ok=True)
        # Last: as long as it is there, `down` can be called again.
        layout.description.unlink()
