"""The files of a small image that can run bash and Python: this machine's own, as one layer."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

from .oci_layout import Layer, pack

PYTHON = "/usr/bin/python3"
_LEFT_OUT = re.compile(
    r"/(__pycache__|test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data"
    r"|dist-packages|config-3[^/]*)(/|$)"
)
_WHERE = (
    "import json, os, sys, sysconfig;"
    "print(json.dumps([os.path.realpath(sys.executable), sysconfig.get_path('stdlib')]))"
)
_FOLDERS = ("dev", "proc", "sys", "run", "root", "tmp", "var/tmp", "etc", "usr/local/bin", "bin")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nvideo:x:44:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/resolv.conf": "",
}


def base_layer() -> Layer:
    """bash, busybox's commands and Python with its standard library."""
    words = [PYTHON, "-I", "-c", _WHERE]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    python, stdlib = json.loads(said)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", dereference=True) as tar:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if "tmp" in folder else 0o755
            tar.addfile(entry)
        for name, text in _FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
        for source, target in (("/bin/busybox", "bin/busybox"), ("/bin/bash", "bin/bash")):
            tar.add(source, target, filter=_plain)
        for applet in _applets():
            _link(tar, f"bin/{applet}", "busybox")
        tar.add(python, python[1:], filter=_plain)
        _link(tar, "usr/bin/python3", Path(python).name)
        tar.add(stdlib, stdlib[1:], filter=_plain)
        programs = ["/bin/bash", python, *map(str, Path(stdlib).glob("lib-dynload/*.so"))]
        for library in _libraries(programs):
            tar.add(library, library[1:], filter=_plain)
    return pack(raw.getvalue())


def _applets() -> list[str]:
    run = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True)
    return sorted(set(run.stdout.split()) - {"bash", "busybox"})


def _libraries(programs: list[str]) -> list[str]:
    run = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True)
    return sorted(set(re.findall(r"(/\S+\.so\S*) \(", run.stdout)))


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """No caches and no tests, nobody's name, no time."""
    if _LEFT_OUT.search(f"/{entry.name}"):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = 0
    return entry
