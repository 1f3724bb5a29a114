"""What verifying weights costs: our hashing and re-check against sha256sum and the processor itself.

Prints, in one run over made files in a warm cache: GB/s of ours, of sha256sum with one and with as
many processes as there are cores, of one core's sha256 without files, and the share that ours reaches
of (cores x that); then the milliseconds of a re-check of unchanged files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from serve_repro.weights.hashing import hash_files
from serve_repro.weights.receipt import recheck

MIB = 1_048_576
GB = 1e9


def make_files(folder: Path, count: int, gigabytes: float) -> list[Path]:
    """Files of equal size, all different; returns their names."""
    size = int(gigabytes * GB / count)
    noise = os.urandom(MIB)
    for number in range(count):
        with (folder / f"{number:05d}.safetensors").open("wb") as stream:
            stream.write(number.to_bytes(8, "little"))
            for _ in range(size // MIB):
                stream.write(noise)
    return sorted(path.relative_to(folder) for path in folder.iterdir())


def seconds(run: Callable[[], object], repeats: int) -> float:
    """The quickest of some runs; the first of them also warms the cache."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best


def sha256sum(folder: Path, processes: int) -> None:
    """coreutils over all files."""
    words = ["xargs", "-0", "-n1", f"-P{processes}", "sha256sum"]
    names = "\0".join(str(path) for path in sorted(folder.iterdir()))
    subprocess.run(words, input=names.encode(), stdout=subprocess.DEVNULL, check=True)


def one_core(gigabytes: float) -> None:
    """Sha256 of bytes that are in memory already."""
    state, piece = hashlib.sha256(), bytes(4 * MIB)
    for _ in range(int(gigabytes * GB / len(piece))):
        state.update(piece)


def receipt(folder: Path, files: list[Path], hashes: dict[str, str]) -> dict[str, Any]:
    """A node's receipt of these files."""
    entries = []
    for path in files:
        status = (folder / path).stat()
        entry = {"path": str(path), "bytes": status.st_size, "sha256": hashes[str(path)]}
        entries.append(entry | {"mtime_ns": status.st_mtime_ns, "inode": status.st_ino})
    return {"node": "here", "model": "made", "folder": str(folder), "files": entries}


def main(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        files = make_files(folder, arguments.files, arguments.gb)
        total = sum((folder / path).stat().st_size for path in files) / GB
        hashes = hash_files(folder, files, "made").hashes
        rates = {
            "ours": total / seconds(lambda: hash_files(folder, files, "made"), arguments.repeats),
            "sha256sum, 1 process": total / seconds(lambda: sha256sum(folder, 1), arguments.repeats),
            f"sha256sum, {cores} processes": total
            / seconds(lambda: sha256sum(folder, cores), arguments.repeats),
            "one core, no files": 1.0 / seconds(lambda: one_core(1.0), arguments.repeats),
        }
        proof = receipt(folder, files, hashes)
        again_ms = 1000 * seconds(lambda: recheck(proof), 20)
    print(f"{total:.1f} GB in {len(files)} files, {cores} cores, best of {arguments.repeats}")
    for label, rate in rates.items():
        print(f"{label:<26} {rate:6.2f} GB/s")
    print(f"ours / (cores x one core)  {rates['ours'] / (cores * rates['one core, no files']):6.2f}")
    print(f"re-check, nothing changed  {again_ms:6.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=4.0, help="GB of made files")
    parser.add_argument("--files", type=int, default=96, help="how many")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, of which the best counts")
    parser.add_argument("--folder", type=Path, help="where to make them; a temporary folder if absent")
    main(parser.parse_args())
