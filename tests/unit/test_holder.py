"""The holder: what it says of its rank, and that it ends the rank whatever happens to anybody."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from serve_repro.launch import leftovers
from serve_repro.launch.causes import tail

from .processes import new_run_id, nothing_left, until

BASE = Path(__file__).parents[2]
SLEEP = "import time; print('up', flush=True); time.sleep(60)"
DEAF = "signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


class Held:
    """One holder in a real process, as the supervisor starts it."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id
        self.process: subprocess.Popen[str] | None = None

    def start(
        self,
        code: str = SLEEP,
        stop_s: float = 5,
        cleanup: list[list[str]] | None = None,
        master: str = "127.0.0.1",
    ) -> subprocess.Popen[str]:
        env = {leftovers.RUN_ID: "${RUN_ID}", leftovers.PART: "0", "SCRATCH_IS": "${SCRATCH}"}
        order = {
            "rank": 0,
            "run_id": self.run_id,
            "folder": str(self.folder),
            "start": {"argv": [sys.executable, "-c", code], "env": env},
            "cleanup": [{"argv": argv, "env": {}} for argv in cleanup or []],
            "values": {"RUN_ID": self.run_id},
            "master": master,
            "stop_s": stop_s,
        }
        path = self.folder / "order.json"
        path.write_text(json.dumps(order), encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, str(BASE / "scripts/hold_rank.py"), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"TMPDIR": str(self.folder), "PATH": "/usr/bin:/bin"},
        )
        return self.process

    def up(self) -> None:
        until(lambda: "up" in tail(self.folder / "server.log", 5))

    def finish(self) -> tuple[int, dict[str, dict[str, Any]], str]:
        """Close its input: (exit code, what it said by event, its own errors)."""
        assert self.process is not None
        said, errors = self.process.communicate(timeout=20)
        events = [json.loads(line) for line in said.splitlines()]
        return self.process.returncode, {event["event"]: event for event in events}, errors

    def scratches(self) -> list[Path]:
        return list(self.folder.glob("serve-repro-*"))


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    run_id = new_run_id()
    with nothing_left(run_id):
        holder = Held(tmp_path, run_id)
        yield holder
        if holder.process is not None and holder.process.poll() is None:
            holder.process.kill()
            holder.process.communicate()


def test_it_says_where_its_rank_runs_and_how_it_ended(held: Held) -> None:
    held.start()
    held.up()
    (rank,) = leftovers.processes_of(held.run_id, 0)
    code, said, errors = held.finish()
    assert (code, errors) == (0, "")
    assert said["started"]["pid"] == rank.pid
    assert (said["started"]["address"], said["started"]["interface"]) == ("127.0.0.1", "lo")
    assert said["ended"] == {
        "event": "ended",
        "code": -15,
        "asked": "end of input",
        "killed": [],
        "left": [],
    }


def test_what_was_started_is_written_word_for_word(held: Held) -> None:
    held.start()
    held.up()
    started = json.loads((held.folder / "started.json").read_text(encoding="utf-8"))
    assert started["argv"] == [sys.executable, "-c", SLEEP]
    assert started["env"][leftovers.RUN_ID] == held.run_id
    assert started["env"]["SCRATCH_IS"] == started["scratch"] == str(held.scratches()[0])
    held.finish()


def test_the_scratch_folder_goes_with_the_rank(held: Held) -> None:
    held.start()
    held.up()
    assert len(held.scratches()) == 1
    held.finish()
    assert held.scratches() == []


def test_it_says_that_it_is_there_while_nothing_happens(held: Held) -> None:
    held.start()
    held.up()
    time.sleep(1.3)
    assert "beat" in held.finish()[1]


def test_a_rank_that_ends_by_itself_ends_its_holder_with_an_error(held: Held) -> None:
    holder = held.start("raise SystemExit(3)")
    assert holder.wait(10) == 1
    _, said, _ = held.finish()
    assert (said["ended"]["code"], said["ended"]["asked"]) == (3, None)


def test_a_rank_ends_with_the_supervisor_that_was_killed(held: Held) -> None:
    """kill -9 closes the pipe, and nothing else tells the holder."""
    holder = held.start()
    held.up()
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.close()  # nobody listens either
    holder.stdin.close()
    assert holder.wait(15) == 0
    assert leftovers.processes_of(held.run_id) == []


def test_clean_up_goes_on_when_one_of_its_commands_fails_or_is_not_there(held: Held) -> None:
    said = held.folder / "said"
    add = [sys.executable, "-c", f"print(7); open({str(said)!r}, 'a').write('x')"]
    held.start(cleanup=[["false"], ["/no/such/docker", "rm"], add])
    held.up()
    code, events, errors = held.finish()
    assert code == 0
    assert said.read_text(encoding="utf-8") == "x"
    assert "/no/such/docker" in errors
    assert events["ended"]["left"] == []
    assert held.scratches() == []


def test_a_command_that_cannot_be_started_leaves_nothing_and_is_told(held: Held) -> None:
    holder = held.start()
    held.finish()
    order = json.loads((held.folder / "order.json").read_text(encoding="utf-8"))
    order["start"]["argv"] = ["/no/such/vllm", "serve"]
    (held.folder / "order.json").write_text(json.dumps(order), encoding="utf-8")
    run = subprocess.run(
        holder.args,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        env={"TMPDIR": str(held.folder), "PATH": "/usr/bin:/bin"},
    )
    (ended,) = [json.loads(line) for line in run.stdout.splitlines()]
    assert (run.returncode, ended["event"], ended["code"]) == (1, "ended", 127)
    assert "/no/such/vllm" in tail(held.folder / "server.log", 1)
    assert held.scratches() == []


def test_a_node_without_a_route_to_the_master_says_so_and_leaves_nothing(held: Held) -> None:
    holder = held.start(master="no-such-host.invalid")
    assert holder.wait(20) == 1
    assert "no-such-host.invalid: no route" in held.finish()[2]
    assert held.scratches() == []


def test_what_was_forked_while_the_rest_was_killed_is_ended_too(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the list of what is left and its KILL, a process may fork once more."""
    kill = leftovers.kill
    late: list[subprocess.Popen[bytes]] = []

    def kill_late(processes: list[psutil.Process], grace_s: float) -> list[psutil.Process]:
        if processes and not late:
            env = {leftovers.RUN_ID: held.run_id, leftovers.PART: "0"}
            late.append(subprocess.Popen([sys.executable, "-c", SLEEP], env=env))
        return kill(processes, grace_s)

    monkeypatch.setattr(leftovers, "kill", kill_late)
    env = {leftovers.RUN_ID: held.run_id, leftovers.PART: "0"}
    first = subprocess.Popen([sys.executable, "-c", SLEEP], env=env)
    until(lambda: leftovers.processes_of(held.run_id))
    found = leftovers.processes_of(held.run_id, 0)
    killed, left = leftovers.kill_all(lambda: leftovers.processes_of(held.run_id, 0), 5)
    assert [name.split()[0] for name in killed] == [str(found[0].pid), str(late[0].pid)]
    assert left == []
    assert leftovers.processes_of(held.run_id) == []
    for process in (first, *late):
        process.wait()


def maps(path: Path, code: str) -> str:
    """A rank that maps a file of shared memory and goes on with some code."""
    return (
        "import mmap, os, signal, time\n"
        f"stream = open({str(path)!r}, 'w+b'); stream.truncate(4096)\n"
        f"mapped = mmap.mmap(stream.fileno(), 4096); {code}"
    )


@pytest.fixture
def memory() -> Iterator[Path]:
    path = Path(f"/dev/shm/serve-repro-unit-{uuid.uuid4().hex}")
    yield path
    path.unlink(missing_ok=True)


def test_shared_memory_of_a_rank_that_had_to_be_killed_is_removed(held: Held, memory: Path) -> None:
    held.start(maps(memory, DEAF), stop_s=0.3)
    held.up()
    assert memory.exists()
    _, said, _ = held.finish()
    assert len(said["ended"]["killed"]) == 1
    assert said["ended"]["code"] == -9
    assert not memory.exists()
