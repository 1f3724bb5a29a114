"""Which Debian package brings which program, and how to install them.

The package lists are text files beside this folder, so a CI can read them without Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from devslurm.errors import ClusterError

_HERE = Path(__file__).resolve().parent.parent
_PROGRAMS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sinfo": "slurm-wlm",
    "squeue": "slurm-wlm",
    "scancel": "slurm-wlm",
    "munged": "munge",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}
_ACCOUNTING_PROGRAMS = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    # mariadb-install-db calls this one, and its package does not say so.
    "my_print_defaults": "mariadb-client-core",
}
# Daemons are not on an ordinary user's PATH in Debian.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def package_names(accounting: bool) -> list[str]:
    """Return the apt packages that a cluster needs."""
    names = (_HERE / "apt-packages.txt").read_text().split()
    if accounting:
        names += (_HERE / "apt-packages-accounting.txt").read_text().split()
    return names


def missing_packages(accounting: bool) -> list[str]:
    """Return the apt packages whose programs are not found, sorted."""
    programs = _PROGRAMS | (_ACCOUNTING_PROGRAMS if accounting else {})
    missing = {package for name, package in programs.items() if not shutil.which(name, path=SEARCH_PATH)}
    # The database plugin is a shared object, not a program.
    if accounting and not list(
        Path("/usr/lib").glob("*/slurm*/accounting_storage_mysql.so"),
    ):
        missing.add("slurm-wlm-mysql-plugin")
    return sorted(missing)


def require(accounting: bool) -> None:
    """Raise ClusterError with the apt-get command to use if a program is missing."""
    missing = missing_packages(accounting)
    if missing:
        raise ClusterError(
            "programs are missing; install their packages with: "
            "apt-get install --no-install-recommends " + " ".join(missing)
        )


def install(accounting: bool) -> None:
    """Install all packages with apt-get; raise ClusterError if that fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", *package_names(accounting)],
    ):
        try:
            code = subprocess.run(command, env=environment, check=False).returncode
        except FileNotFoundError:
            raise ClusterError("apt-get not found: only Debian's packages are known here") from None
        if code:
            raise ClusterError(f"`{' '.join(command)}` ended with exit code {code}")
