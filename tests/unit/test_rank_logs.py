"""What is read from a rank's log: faults, and the host blocks of its workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_repro.gates.evidence import read_log

STOP = "(EngineCore pid=1) INFO [core.py:1454] [shutdown] EngineCore: trigger received signal=SIGTERM"
DEAD = "(APIServer pid=1) ERROR vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["Memory access fault by GPU node-2 (Agent handle: 0x1) on address 0x7f"], 1),
        (["INFO x", "!!!!!!! Segfault encountered !!!!!!!"], 2),
        (["Fatal Python error: Segmentation fault"], 1),
        (["INFO x", DEAD, "Fatal Python error: Segmentation fault"], 2),
        (["[shutdown] Executor: waiting for worker exit count=1", DEAD], 2),
        ([STOP, DEAD], None),
        ([STOP, "Traceback (most recent call last):"], None),
        (["Traceback (most recent call last):"], None),
    ],
)
def test_faults_are_found_in_a_log(tmp_path: Path, lines: list[str], fault: int | None) -> None:
    """An engine that dies in the deliberate stop has not failed."""
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = read_log(path)
    assert found.lines == len(lines)
    wanted = None if fault is None else f"line {fault}: {lines[fault - 1][:200]}"
    assert found.fault == wanted


def test_a_long_line_is_told_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("Segmentation fault " + "x" * 1000, encoding="utf-8")
    fault = read_log(path).fault
    assert fault is not None
    assert len(fault) == len("line 1: ") + 200


@pytest.mark.parametrize(
    ("line", "blocks"),
    [
        ("SimpleCPUOffloadWorker [CPU]: 3 tensors, 170 CPU blocks (0.02 GB)", [170]),  # 0.32.0
        ("SimpleCPUOffloadWorker: 3 unique GPU KV tensors, allocating 170 CPU blocks (0.02 GB)", [170]),
        ("SimpleCPUOffloadWorker [DISK]: 3 tensors, 170 disk slots (0.02 GB)", [170]),
        ("SimpleCPUOffloadScheduler: Allocating 170 offload blocks (0.02 GB, mode=eager)", []),
    ],
)
def test_a_workers_host_blocks_are_read_from_its_log(
    tmp_path: Path, line: str, blocks: list[int]
) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"(Worker_PP1 pid=1) INFO [worker.py:213] {line}\n", encoding="utf-8")
    assert read_log(path).host_blocks == blocks


@pytest.mark.parametrize(
    ("line", "blocks"),
    [
        ("SimpleCPUOffloadScheduler: Allocating 170 offload blocks (0.02 GB, mode=eager)", 170),
        ("SimpleCPUOffloadScheduler: Allocating 512 CPU blocks (0.02 GB, mode=eager)", 512),  # 0.27.1
        ("SimpleCPUOffloadWorker: 3 unique GPU KV tensors, allocating 170 CPU blocks (0.02 GB)", None),
    ],
)
def test_a_schedulers_host_blocks_are_read_from_its_log(
    tmp_path: Path, line: str, blocks: int | None
) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"(EngineCore pid=1) INFO [manager.py:114] {line}\n", encoding="utf-8")
    assert read_log(path).scheduler_blocks == blocks
