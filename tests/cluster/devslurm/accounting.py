"""slurmdbd with a MariaDB of the cluster's own, reachable by a Unix socket only."""

from __future__ import annotations

from devslurm import hosts, processes
from devslurm.config import CONTROLLER_HOST
from devslurm.errors import ClusterError
from devslurm.spec import Layout

INSTALL, DATABASE, DAEMON = "mariadb-install", "mariadbd", "slurmdbd"


def create_database(layout: Layout, timeout_s: float = 60) -> None:
    """Make the files of an empty database; raise ClusterError if that fails."""
    data = layout.database / "data"
    # In a host of its own, because it is a script with children: one signal ends them all.
    process = hosts.start(
        layout,
        INSTALL,
        CONTROLLER_HOST,
        [
            *("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root"),
            *("--skip-test-db", "--skip-name-resolve"),
            "--auth-root-authentication-method=socket",
        ],
    )
    ended = processes.end(process, None, timeout_s)
    hosts.cut_power(layout, INSTALL)
    if not ended or not (data / "mysql").is_dir():
        raise ClusterError(f"no database was made; see {layout.logs / (INSTALL + '.out')}")


def start_database(layout: Layout) -> None:
    """Start MariaDB with small buffers and without a network port."""
    hosts.start(
        layout,
        DATABASE,
        CONTROLLER_HOST,
        [
            *("mariadbd", "--no-defaults", "--user=root", "--skip-networking"),
            f"--datadir={layout.database / 'data'}",
            f"--socket={layout.database / 'socket'}",
            f"--pid-file={layout.database / 'pid'}",
            "--performance-schema=OFF",
            # Nothing is kept, so nothing need be safe on the disk.
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            # slurmdbd warns below this.
            "--innodb-lock-wait-timeout=900",
        ],
    )


def start_daemon(layout: Layout) -> None:
    """Start slurmdbd, which makes its tables by itself."""
    hosts.start(layout, DAEMON, CONTROLLER_HOST, ["slurmdbd", "-D"])
