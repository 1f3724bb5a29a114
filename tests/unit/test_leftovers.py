"""What an attempt leaves is found by its mark and removed; nothing else is touched."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_repro.launch import leftovers

from .processes import alive, python, until

SLEEP = "import time; print('up', flush=True); time.sleep(60)"

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
"""
"""setsid and two forks: the last process's parent is init, and its group and session are its own."""

MAPS = """
import mmap, sys, time
with open(sys.argv[1], "r+b") as stream:
    mapped = mmap.mmap(stream.fileno(), 0)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def memory() -> Iterator[Path]:
    """A file in shared memory, as torch or vLLM would make one."""
    path = Path(f"/dev/shm/serve-repro-unit-{uuid.uuid4().hex}")
    path.write_bytes(b"\0" * 4096)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def test_a_process_that_has_left_its_parents_group_and_session_is_found_and_ended(run_id: str) -> None:
    with python(DAEMON, run_id=run_id) as parent:
        assert parent.wait(10) == 0
        until(lambda: leftovers.processes_of(run_id))
        (daemon,) = leftovers.processes_of(run_id)
        assert daemon.pid != parent.pid
        assert leftovers.kill([daemon], 5) == []
        assert not alive(daemon.pid)
    assert leftovers.processes_of(run_id) == []


def test_processes_of_others_are_not_found_and_not_touched(run_id: str) -> None:
    with (
        python(SLEEP, run_id=run_id) as ours,
        python(SLEEP, run_id=run_id + "0") as longer,
        python(SLEEP, run_id=run_id[:-1]) as shorter,
        python(SLEEP) as unmarked,
    ):
        for process in (ours, longer, shorter, unmarked):
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
        assert [process.pid for process in leftovers.processes_of(run_id)] == [ours.pid]
        leftovers.kill(leftovers.processes_of(run_id), 5)
        assert ours.wait(5) == -9, "its exit code is left to whoever started it"
        assert [process.poll() for process in (longer, shorter, unmarked)] == [None, None, None]


@pytest.mark.parametrize("name", ["WATCHED", f"NO_{leftovers.RUN_ID}"])
def test_a_mark_inside_another_variable_is_no_mark(run_id: str, name: str) -> None:
    """Somebody who watches an attempt may have its mark in an environment variable of their own."""
    mark = run_id if name.endswith(leftovers.RUN_ID) else f"{leftovers.RUN_ID}={run_id}"
    with python(SLEEP, env={name: mark}) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "up\n"
        assert leftovers.processes_of(run_id) == []


def test_a_process_without_a_mark_is_found_by_its_session(run_id: str) -> None:
    """vLLM's processes write their titles over their environments, and so over the mark."""
    with python(SLEEP) as unmarked:
        assert unmarked.pid not in [process.pid for process in leftovers.processes_of(run_id)]
        session = {os.getsid(unmarked.pid)}
        found = leftovers.processes_of(run_id, sessions=session)
        assert unmarked.pid in [process.pid for process in found]


def test_the_parts_of_an_attempt_are_told_apart(run_id: str) -> None:
    with (
        python(SLEEP, run_id=run_id, env={leftovers.PART: "1"}) as rank,
        python(SLEEP, run_id=run_id, env={leftovers.PART: "client"}) as client,
    ):
        for process in (rank, client):
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
        assert [process.pid for process in leftovers.processes_of(run_id, 1)] == [rank.pid]
        assert [process.pid for process in leftovers.processes_of(run_id, "client")] == [client.pid]


def test_what_has_ended_already_is_no_problem(run_id: str) -> None:
    with python(SLEEP, run_id=run_id) as process:
        until(lambda: leftovers.processes_of(run_id))
        found = leftovers.processes_of(run_id)
        process.kill()
        process.wait()
        assert leftovers.kill(found, 5) == []


def test_shared_memory_is_noted_while_a_process_maps_it(run_id: str, memory: Path) -> None:
    with python(MAPS, str(memory), run_id=run_id) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert leftovers.shared_memory_of(leftovers.processes_of(run_id)) == {memory}


def test_shared_memory_that_is_still_mapped_stays_and_goes_when_it_is_not(memory: Path) -> None:
    with python(MAPS, str(memory)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert leftovers.remove_shared_memory({memory}) == []
        assert memory.exists()
    assert leftovers.remove_shared_memory({memory}) == [memory]
    assert not memory.exists()


def test_shared_memory_of_another_user_stays(memory: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make another user's file")
    os.chown(memory, 65534, 65534)
    assert leftovers.remove_shared_memory({memory}) == []
    assert memory.exists()


def test_memory_that_its_process_removed_itself_is_no_problem(memory: Path) -> None:
    memory.unlink()
    assert leftovers.remove_shared_memory({memory}) == []


def test_only_what_was_noted_is_removed(memory: Path) -> None:
    assert leftovers.remove_shared_memory(set()) == []
    assert memory.exists()
