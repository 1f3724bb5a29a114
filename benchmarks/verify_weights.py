"""What verifying weights costs: our hashing and re-check against sha256sum and the processor itself.

Prints, in one run over made files in a warm cache, GB/s of: ours; sha256sum and `openssl dgst` with
one process, and sha256sum with one a core; the hub client's own verification; one core that reads and
hashes; one core that hashes memory. Then the share that ours reaches of (cores x one core), with the
reading and without it; and the milliseconds of a re-check of unchanged files.
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

from huggingface_hub import __version__ as hub_version
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._verification import verify_maps

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from serve_repro.documents import file_sha256
from serve_repro.weights.hashing import hash_files
from serve_repro.weights.receipt import recheck

MIB = 1_048_576
READER, MEMORY = "one core, files", "one core, memory"
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


def openssl(folder: Path) -> None:
    """One process over all files."""
    words = ["openssl", "dgst", "-sha256", *map(str, sorted(folder.iterdir()))]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)


def hub_client(folder: Path, hashes: dict[str, str]) -> None:
    """What `hf cache verify` does once the hub has told it the hashes (a private function of it)."""
    remote = {
        name: RepoFile(  # type: ignore[no-untyped-call]
            path=name,
            size=(folder / name).stat().st_size,
            oid="0" * 40,
            lfs={"size": 0, "oid": value, "pointerSize": 0},
        )
        for name, value in hashes.items()
    }
    told = verify_maps(
        remote_by_path=remote,
        local_by_path={name: folder / name for name in hashes},
        revision="0" * 40,
        verified_path=folder,
    )
    if told.mismatches:
        raise SystemExit(f"huggingface_hub finds other hashes: {told.mismatches}")


def one_reader(folder: Path) -> None:
    """One core that reads and hashes file by file: hashlib's own way."""
    for path in sorted(folder.iterdir()):
        file_sha256(path)


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
        ways: dict[str, Callable[[], object]] = {
            "ours": lambda: hash_files(folder, files, "made"),
            "sha256sum, 1 process": lambda: sha256sum(folder, 1),
            f"sha256sum, {cores} processes": lambda: sha256sum(folder, cores),
            "openssl dgst, 1 process": lambda: openssl(folder),
            f"huggingface_hub {hub_version}": lambda: hub_client(folder, hashes),
            READER: lambda: one_reader(folder),
        }
        ways[MEMORY] = lambda: one_core(total)
        rates = dict.fromkeys(ways, 0.0)
        # Round by round: what else the machine does then meets all of them alike.
        for _ in range(arguments.repeats):
            for label, run in ways.items():
                rates[label] = max(rates[label], total / seconds(run, 1))
        proof = receipt(folder, files, hashes)
        again_ms = 1000 * seconds(lambda: recheck(proof), 20)
    print(f"{total:.1f} GB in {len(files)} files, {cores} cores, best of {arguments.repeats}")
    for label, rate in rates.items():
        print(f"{label:<26} {rate:6.2f} GB/s")
    for label in (READER, MEMORY):
        print(f"ours / ({cores} x {label}): {rates['ours'] / (cores * rates[label]):.3f}")
    print(f"re-check, nothing changed  {again_ms:6.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=4.0, help="GB of made files")
    parser.add_argument("--files", type=int, default=96, help="how many")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, of which the best counts")
    parser.add_argument("--folder", type=Path, help="where to make them; a temporary folder if absent")
    main(parser.parse_args())
