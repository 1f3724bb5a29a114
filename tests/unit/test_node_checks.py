"""What a look at a node tells, and what each thing seen means for a point."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from serve_repro.nodes import probe
from serve_repro.nodes.checks import HARDWARE, Check, check_node
from serve_repro.nodes.facts import Facts, facts_from
from serve_repro.plan.model import NodeNeeds

from .plans import plan_of
from .processes import alive, new_run_id, python, until

GIB = 1 << 30
SLEEP = "import time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def needs() -> NodeNeeds:
    """What the Kimi-K3 recipe's site asks of a node, and a memory lock without limit."""
    shipped = plan_of("kimik3-fp4-mi355x-vllm-agentic-tp8pp2", "mi355x-amds", 20).needs
    assert not shipped.memlock  # docker's daemon sets it
    return shipped.model_copy(update={"memlock": True})


def put(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """The kernel's files of a healthy node: two processors, eight GPUs, eight RDMA devices."""
    for number in range(10):
        properties = f"cpu_cores_count 64\nsimd_count {0 if number < 2 else 1024}\nname x"
        put(tmp_path / f"class/kfd/kfd/topology/nodes/{number}/properties", properties)
    for card in range(8):
        put(tmp_path / f"class/drm/card{card}/device/mem_info_vram_total", 288 * GIB)
        put(tmp_path / f"class/drm/card{card}/device/mem_info_vram_used", GIB)
        (tmp_path / f"class/infiniband/rdma{card}").mkdir(parents=True)
    put(tmp_path / "class/kfd/kfd/proc/77/vram_1", 0)
    return tmp_path


def look(sysfs: Path) -> Facts:
    """A look at the made-up node, its limit on locked memory and its disk made up too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "clean", lambda _: ([], [], []))  # of this machine
        seen = probe.look({"folders": ["/dev/shm"], "containers": None}, sysfs)
    return seen._replace(memlock=-1, free={"/dev/shm": 128 * GIB})


def bad(needs: NodeNeeds, facts: Facts) -> list[Check]:
    return [check for check in check_node(needs, facts) if check.outcome != "pass"]


def test_a_healthy_node_passes_every_check(needs: NodeNeeds, sysfs: Path) -> None:
    checks = check_node(needs, look(sysfs))
    assert [check for check in checks if check.outcome != "pass"] == []
    assert [check.check for check in checks] == [
        *("gpus", "gpus_idle", "vram_free", "rdma", "memlock", "free_space", "leftovers", "containers")
    ]
    assert all(check.seen for check in checks)


def test_a_node_that_needs_no_gpu_is_not_asked_for_one(sysfs: Path) -> None:
    checks = check_node(plan_of("tiny-cpu-tp1pp2", "laptop", 2).needs, look(sysfs))
    assert [check.check for check in checks] == ["free_space", "leftovers"]


def test_a_gpu_that_is_gone(needs: NodeNeeds, sysfs: Path) -> None:
    (sysfs / "class/kfd/kfd/topology/nodes/9/properties").unlink()
    assert bad(needs, look(sysfs)) == [Check("gpus", "fail", "7 GPUs, the site says 8")]
    assert "gpus" in HARDWARE


def test_a_driver_that_is_not_loaded(needs: NodeNeeds, tmp_path: Path) -> None:
    outcomes = {check.check: check.outcome for check in bad(needs, look(tmp_path / "empty"))}
    assert outcomes == {"gpus": "fail", "gpus_idle": "unknown", "vram_free": "unknown", "rdma": "fail"}
    other = needs.model_copy(update={"accelerator": "h200"})  # KFD would not list it anyway
    assert bad(other, look(tmp_path / "empty"))[0].outcome == "unknown"


def test_a_process_on_a_gpu(needs: NodeNeeds, sysfs: Path) -> None:
    put(sysfs / "class/kfd/kfd/proc/4711/vram_1", 3 * GIB)
    put(sysfs / "class/kfd/kfd/proc/4711/vram_2", GIB)
    assert bad(needs, look(sysfs)) == [Check("gpus_idle", "fail", "process 4711 holds 4096 MiB")]


def test_gpu_memory_that_nobody_seems_to_hold(needs: NodeNeeds, sysfs: Path) -> None:
    put(sysfs / "class/drm/card3/device/mem_info_vram_used", 100 * GIB)
    (found,) = bad(needs, look(sysfs))
    assert (found.check, found.outcome) == ("vram_free", "fail")
    assert "34.7% in use (card 3)" in found.seen


def test_gpu_memory_that_is_not_told_is_unknown(needs: NodeNeeds, sysfs: Path) -> None:
    for path in sysfs.glob("class/drm/*/device/*"):
        path.unlink()
    (found,) = bad(needs, look(sysfs))
    assert (found.check, found.outcome) == ("vram_free", "unknown")


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        ("rdma0,rdma7", None),
        ("rdma", None),  # names that devices begin with
        ("=rdma0:1", None),
        ("^rdma0", None),
        ("rdma7,rdma8", "missing rdma8;"),
        ("=rdma", "missing rdma;"),
    ],
)
def test_rdma_devices_as_nccl_names_them(
    needs: NodeNeeds, sysfs: Path, wanted: str, missing: str | None
) -> None:
    found = bad(needs.model_copy(update={"rdma": wanted}), look(sysfs))
    assert [check.check for check in found] == (["rdma"] if missing else [])
    assert missing is None or found[0].seen.startswith(missing)


def test_a_limit_on_locked_memory(needs: NodeNeeds, sysfs: Path) -> None:
    (found,) = bad(needs, look(sysfs)._replace(memlock=65536))
    assert found == Check("memlock", "fail", "65536 bytes, the site asks for no limit")


def test_a_full_disk_is_named(needs: NodeNeeds, sysfs: Path) -> None:
    (found,) = bad(needs, look(sysfs)._replace(free={"/dev/shm": 5 << 20, "/tmp": GIB}))
    assert found == Check("free_space", "fail", "/dev/shm: 5 MiB free")


def test_what_ended_attempts_left(needs: NodeNeeds, sysfs: Path) -> None:
    facts = look(sysfs)
    assert bad(needs, facts._replace(left=["process 5"]))[0].outcome == "fail"
    assert bad(needs, facts._replace(ending=["process 5"]))[0].outcome == "unknown"
    cleaned = check_node(needs, facts._replace(cleaned=["process 5"]))
    assert Check("leftovers", "pass", "cleaned: process 5") in cleaned
    (found,) = bad(needs, facts._replace(containers=["container serve-repro-x"]))
    assert found == Check("containers", "fail", "container serve-repro-x")


def test_facts_survive_the_way_from_the_node(sysfs: Path) -> None:
    facts = look(sysfs)
    assert facts_from(json.loads(json.dumps(facts._asdict()))) == facts


def test_only_what_is_ours_old_and_held_by_nobody_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    old, young, held = new_run_id(), new_run_id(), new_run_id()
    with (
        python(SLEEP, run_id=old) as first,
        python(SLEEP, run_id=young) as second,
        python(SLEEP, run_id=held) as third,
        python(SLEEP) as stranger,
    ):
        for process in (first, second, third, stranger):
            assert process.stdout is not None
            process.stdout.readline()
        # Others' tests run on the same machine: only these four may be looked at.
        mine = {process.pid for process in (first, second, third, stranger)}
        all_of = psutil.process_iter
        monkeypatch.setattr(
            psutil,
            "process_iter",
            lambda *words: (found for found in all_of(*words) if found.pid in mine),
        )
        ages = {first.pid: 1000.0}
        born = psutil.Process.create_time
        monkeypatch.setattr(
            psutil.Process, "create_time", lambda self: born(self) - ages.get(self.pid, 0.0)
        )
        unsure = probe.Attempts({held}, complete=False)
        assert probe.clean(unsure)[0] == []  # nobody can say whose it is
        cleaned, left, ending = probe.clean(probe.Attempts({held}, complete=True))
        assert cleaned == [f"process {first.pid} of attempt {old}"]
        assert (left, ending) == ([], [f"process {second.pid} of attempt {young}"])
        until(lambda: not alive(first.pid))
        assert [alive(process.pid) for process in (second, third, stranger)] == [True] * 3


def test_a_living_holder_speaks_for_its_attempt(tmp_path: Path) -> None:
    run_id = new_run_id()
    put(tmp_path / "order.json", json.dumps({"run_id": run_id}))
    with python(SLEEP, "scripts/hold_rank.py", str(tmp_path / "order.json")) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert run_id in probe.held_attempts().run_ids
    assert run_id not in probe.held_attempts().run_ids


def test_containers_of_attempts_under_way_are_not_left_over() -> None:
    listing = ["printf", "serve-repro-x-run1-r0\\nserve-repro-x-run2-r1\\n"]
    found = probe.old_containers(listing, probe.Attempts({"run1"}, complete=True))
    assert found == ["container serve-repro-x-run2-r1"]
    (told,) = probe.old_containers(["/nowhere/docker"], probe.Attempts(set(), complete=True))
    assert "does not answer" in told


def test_a_folder_that_will_be_made_counts_as_its_parent(tmp_path: Path) -> None:
    assert probe.free_bytes(tmp_path / "not/yet") > 0
