"""aiter's hooks: the split on the real function's source, the flush on a stand-in of its interface."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from serve_repro.patches.bundle import build, check_targets
from serve_repro.patches.series import choose, read_series

BASE = Path(__file__).parents[2]
HOOKS = BASE / "patches/hooks"
HERE = Path(__file__).parent
COLUMNS = [3584, 896, 896, 896, 16]

POOL = '''
import threading, time


class Store:
    """A key-value store whose readers wait, for half a second instead of for ever."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, 0.5):
                raise TimeoutError(f"nobody writes {key}")
            return self.values[key]


class IPCBufferPool:
    """The interface of aiter's pool as far as the flush goes, with its defect."""

    def __init__(self, store, rank, world_size):
        self.store, self.rank, self.world_size = store, rank, world_size
        self._ipc_seq, self.registered = 0, []

    def flush_graph_buffers(self, new_buffers):
        if new_buffers == 0:
            return
        import torch

        handle = torch.zeros(64 * new_buffers, dtype=torch.uint8)
        handles, offsets = self._gather_ipc_meta((handle, torch.zeros(new_buffers, dtype=torch.int64)))
        self.registered.append([len(offset) for offset in offsets])

    def _gather_ipc_meta(self, own):
        number, self._ipc_seq = self._ipc_seq, self._ipc_seq + 1
        self.store.set(f"{number}/{self.rank}", own)
        return zip(*(self.store.get(f"{number}/{rank}") for rank in range(self.world_size)))
'''


@pytest.fixture(scope="module")
def products(serve_python: Path, aiter_sources: Path) -> dict[str, dict[str, Any]]:
    """{case: what was seen}."""
    others = sysconfig.get_path("purelib")
    run = subprocess.run(
        [str(serve_python), str(HERE / "aiter_product.py"), str(aiter_sources), str(HOOKS), others],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return {line["case"]: line for line in map(json.loads, run.stdout.splitlines())}


def test_the_split_is_for_this_source(aiter_sources: Path, tmp_path: Path) -> None:
    chosen = choose(read_series(BASE / "patches"), ["aiter-n6288-split"], "x")
    built = build(chosen, BASE / "patches", tmp_path)
    assert [seen["module"] for seen in check_targets(built, aiter_sources, "here")] == [
        "aiter.tuned_gemm"
    ]


def test_split_and_whole_are_the_same_numbers(products: dict[str, dict[str, Any]]) -> None:
    """Whole numbers, small enough to be exact in bf16: not one may differ, whatever the order."""
    exact = [case for case in products if case != "real numbers"]
    assert len(exact) == 11
    assert [case for case in exact if not products[case]["equal"]] == []
    assert all(0 < products[case]["largest"] < 256 for case in exact)
    assert all(product["same_kind"] for product in products.values())


def test_split_and_whole_of_real_numbers_differ_by_rounding_at_most(
    products: dict[str, dict[str, Any]],
) -> None:
    seen = products["real numbers"]
    assert seen["difference"] <= seen["largest"] * 2**-8


@pytest.mark.parametrize("case", ["1", "43", "43 bias", "614 bias"])
def test_columns_are_split(products: dict[str, dict[str, Any]], case: str) -> None:
    rows = int(case.split()[0])
    assert products[case]["parts"] == [[rows, columns] for columns in COLUMNS]


def test_6144_rows_are_cut_so_that_tuned_rows_apply(products: dict[str, dict[str, Any]]) -> None:
    case = "6144 bias"
    cut = [614] * 10 + [4]
    assert products[case]["parts"] == [[rows, columns] for rows in cut for columns in COLUMNS]
    assert products[case]["device_calls"] == ["asm", "hipblaslt"]


@pytest.mark.parametrize("case", ["other shape", "scaled", "shuffled"])
def test_what_is_not_that_product_stays_whole(products: dict[str, dict[str, Any]], case: str) -> None:
    assert len(products[case]["parts"]) == 1


def flushed(python: Path, folder: Path, install: str) -> list[str]:
    """What two ranks say."""
    module = folder / "aiter/dist/device_communicators/custom_all_reduce.py"
    module.parent.mkdir(parents=True)
    module.write_text(POOL, encoding="utf-8")
    run = subprocess.run(
        [str(python), str(HERE / "flush_ranks.py"), str(folder), str(HOOKS), install],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return run.stdout.splitlines()


def test_without_the_hook_a_rank_without_new_buffers_makes_the_group_hang(
    serve_python: Path, tmp_path: Path
) -> None:
    assert flushed(serve_python, tmp_path, "no") == [
        "rank 0 hangs: nobody writes 1/1",
        "rank 1 registered [[2, 1]]",
    ]


def test_with_the_hook_every_rank_takes_part_in_every_exchange(
    serve_python: Path, tmp_path: Path
) -> None:
    assert flushed(serve_python, tmp_path, "yes") == [
        "['IPCBufferPool.flush_graph_buffers']",
        "rank 0 registered [[2, 0], [1, 1]]",
        "rank 1 registered [[1, 1]]",
    ]
