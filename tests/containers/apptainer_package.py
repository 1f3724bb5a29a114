"""apptainer on Debian 12, which has no package of it: Debian unstable's, beside the system.

Its programs need a newer C library than Debian 12 has, so Debian 13's is unpacked beside them and
written into them with patchelf. Nothing of the system is replaced.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_SOURCES = """Types: deb
URIs: {address}
Suites: trixie sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def program(cache: Path) -> Path:
    """The path of a working apptainer; unpacked into `cache` the first time.

    Raises:
        OSError, subprocess.SubprocessError: there is none, and none can be had.
    """
    installed = shutil.which("apptainer")
    if installed:
        return Path(installed)
    place = cache / "usr/bin/apptainer"
    if not place.exists():
        part = cache.with_name(f"apptainer.{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        _unpack(part)
        shutil.rmtree(cache)
        part.rename(cache)
        # The C library's place is written into the programs, so only where they stay.
        _relink(cache)
    # It makes a folder in the home of whoever calls it.
    home = os.environ | {"HOME": str(cache)}
    subprocess.run([str(place), "version"], check=True, capture_output=True, timeout=60, env=home)
    return place


def _unpack(root: Path) -> None:
    apt = root / "apt"
    for part in ("parts", "lists/partial", "cache/archives/partial", "debs"):
        (apt / part).mkdir(parents=True)
    (apt / "parts/d.sources").write_text(_SOURCES.format(address=_archive()), encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": apt / "parts",
        "Dir::State::Lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "root",
    }
    words = ["apt-get", "-qq", *(word for k, v in options.items() for word in ("-o", f"{k}={v}"))]
    subprocess.run([*words, "update"], check=True, timeout=300, capture_output=True)
    packages = ["apptainer/sid", "libc6/trixie"]
    subprocess.run(
        [*words, "download", *packages], check=True, timeout=300, cwd=apt / "debs", capture_output=True
    )
    for pattern, target in (("apptainer_*.deb", root), ("libc6_*.deb", apt / "libc")):
        (package,) = (apt / "debs").glob(pattern)
        subprocess.run(["dpkg", "-x", str(package), str(target)], check=True, timeout=120)
    library = root / "glibc"
    library.mkdir()
    for path in (apt / "libc/usr/lib/x86_64-linux-gnu").glob("*.so*"):
        shutil.copy2(path, library / path.name)
    shutil.rmtree(apt)
    # It looks for its settings below usr/ and usr/lib/ when it does not lie in /usr.
    (root / "usr/etc").symlink_to("../etc")
    (root / "usr/lib/etc").symlink_to("../../etc")
    for base in ("usr", "usr/lib"):
        (root / base / "var/lib/apptainer/mnt/session").mkdir(parents=True, exist_ok=True)


def _relink(root: Path) -> None:
    loader = ["--set-interpreter", str(root / "glibc/ld-linux-x86-64.so.2")]
    search = f"{root}/glibc:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu"
    for binary in ("usr/bin/apptainer", "usr/lib/x86_64-linux-gnu/apptainer/bin/starter"):
        words = ["patchelf", *loader, "--set-rpath", search, str(root / binary)]
        subprocess.run(words, check=True, timeout=60)


def _archive() -> str:
    """The Debian archive that this machine already uses."""
    for path in [*Path("/etc/apt/sources.list.d").glob("*.sources"), Path("/etc/apt/sources.list")]:
        if path.is_file():
            found = re.search(r"^(?:URIs:|deb)\s+(?:\[[^]]*\]\s+)?(\S+)", path.read_text(), re.MULTILINE)
            if found:
                return found[1]
    raise OSError("no Debian archive is configured")
