"""The hooks' loader in real processes, and the one hook that can run without vLLM."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_repro_hooks import EXIT_NOT_PATCHED, kind_of
from serve_repro_hooks.cpu_synthetic_acceptance import accept

from serve_repro.documents import file_sha256

from .hook_server import BROKEN_HOOK, HOOK, Server


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


@pytest.mark.parametrize(("process", "kind"), [("VllmWorker-0", "worker"), ("MainProcess", "api")])
def test_a_hook_is_installed_and_says_so(server: Server, process: str, kind: str) -> None:
    run = server.run(process)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("patched")
    (line,) = server.attested()
    assert line.pop("pid") > 1
    assert line == {
        "patch": "fake",
        "rank": 1,
        "process": kind,
        "installed": True,
        "replaced": ["part.answer"],
        "targets": [{"module": "victim.part", "sha256": file_sha256(server.part)}],
    }


def claim(server: Server, **fields: Any) -> dict[str, Any]:
    """Make the set one patch that lies over the image."""
    entry = {"id": "laid", "processes": ["worker"], "files": [], "table": None, "version": None}
    text = json.dumps({"patches": [entry | fields]})
    (server.folder / "overlay.json").write_text(text, encoding="utf-8")
    server.run("VllmWorker-0")
    (line,) = [line for line in server.attested() if line["patch"] == "laid"]
    return line


def test_a_process_tells_of_the_patched_files_that_it_imports(server: Server) -> None:
    file = {"path": "victim/part.py", "sha256": file_sha256(server.part)}
    line = claim(server, files=[file], version={"distribution": "serve-repro-hooks", "version": "1"})
    assert line["installed"]
    assert line["targets"] == [file, {"distribution": "serve-repro-hooks", "version": "1"}]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"files": [{"path": "victim/part.py", "sha256": "0" * 64}]}, "part.py has sha256"),
        ({"files": [{"path": "victim/new.py", "sha256": "0" * 64}]}, "there is no file .*new.py"),
        ({"files": [{"path": "stranger/a.py", "sha256": "0" * 64}]}, "stranger is not installed"),
        ({"table": {"variable": "NOT_SET", "sha256": "0" * 64}}, "there is no file"),
        (
            {"version": {"distribution": "serve-repro-hooks", "version": "2"}},
            "serve-repro-hooks has version 1, expected 2",
        ),
    ],
)
def test_a_process_that_imports_something_else_ends_and_says_why(
    server: Server, fields: dict[str, Any], reason: str
) -> None:
    line = claim(server, **fields)
    assert not line["installed"]
    assert re.search(reason, line["reason"])
    # It ended there: the hook behind it was not installed any more.
    assert [entry["patch"] for entry in server.attested()] == ["laid"]


def test_a_process_of_another_kind_stays_as_it_is(server: Server) -> None:
    run = server.run("EngineCore_DP0")
    assert run.stdout == "plain []\n"
    assert server.attested() == []


def test_without_a_patch_set_nothing_is_imported_and_nothing_is_said(server: Server) -> None:
    run = server.run("VllmWorker-0", patched=False)
    assert (run.returncode, run.stdout) == (0, "plain []\n"), run.stderr
    assert not (server.folder / "attestations.jsonl").exists()


@pytest.mark.parametrize(
    ("code", "sha256", "module", "reason"),
    [
        (HOOK, "0" * 64, "victim.part", f"RuntimeError: victim.part has sha256 .*, expected {'0' * 64}"),
        (HOOK, None, "victim.gone", "ImportError: victim.gone has no source file"),
        (HOOK, None, "stranger.part", "ImportError: the package stranger is not installed"),
        (BROKEN_HOOK, None, "victim.part", "SystemExit: even this must not"),
        ("import nothing_of_that_name", None, "victim.part", "ModuleNotFoundError: No module named"),
    ],
    ids=["wrong hash", "no module", "no package", "hook exits", "hook does not import"],
)
def test_a_process_that_cannot_be_patched_ends_and_says_why(
    server: Server, code: str, sha256: str | None, module: str, reason: str
) -> None:
    server.set(code, sha256, module)
    run = server.run("VllmWorker-0")
    assert run.returncode == EXIT_NOT_PATCHED == 78
    assert run.stdout == ""
    assert "serve_repro_hooks: fake is not installed" in run.stderr
    (line,) = server.attested()
    assert line["installed"] is False
    assert re.match(reason, line["reason"])


def test_a_target_with_another_source_is_not_even_imported(server: Server) -> None:
    server.part.write_text("raise SystemError('imported')\n", encoding="utf-8")
    server.set(HOOK, "0" * 64)
    assert "imported" not in server.run("VllmWorker-0").stderr


def test_a_hook_is_refused_where_the_software_has_its_own_remedy(server: Server) -> None:
    (server.folder / "packages/victim/own_remedy.py").touch()
    assert server.run("VllmWorker-0").returncode == EXIT_NOT_PATCHED
    (line,) = server.attested()
    assert line["reason"].startswith("RuntimeError: this software has its own remedy, victim.own_remedy")


def test_targets_of_different_versions_are_refused(server: Server) -> None:
    package, part = server.part.with_name("__init__.py"), server.part
    entry = {
        "id": "fake",
        "superseded_by": None,
        "targets": [
            {"module": "victim", "sha256": {"a": file_sha256(package), "b": "0" * 64}},
            {"module": "victim.part", "sha256": {"a": "0" * 64, "b": file_sha256(part)}},
        ],
        "hook": "fake",
        "processes": ["worker"],
    }
    (server.folder / "set.json").write_text(json.dumps({"hooks": [entry]}), encoding="utf-8")
    assert server.run("VllmWorker-0").returncode == EXIT_NOT_PATCHED
    (line,) = server.attested()
    assert "the targets are of different versions: [['a'], ['b']]" in line["reason"]


@pytest.mark.parametrize(
    ("process", "argv", "kind"),
    [
        ("VllmWorker-7", ["-c", "--multiprocessing-fork"], "worker"),
        ("VllmWorkerProc-1", [], "worker"),
        ("EngineCore", ["/bin/vllm", "serve", "m"], "engine"),
        ("EngineCore_DP0", [], "engine"),
        ("ApiServer_0", [], "api"),
        ("MainProcess", ["/bin/vllm", "serve", "m"], "api"),
        ("MainProcess", ["/p/vllm/model_executor/models/registry.py"], None),
        ("MainProcess", ["/bin/vllm", "bench", "serve"], None),
        ("MainProcess", [], None),
        ("Process-1", ["/bin/vllm", "serve", "m"], None),
        ("VLLM_DP_Coordinator", ["/bin/vllm", "serve", "m"], None),
    ],
)
def test_the_kind_of_a_process_follows_from_what_vllm_calls_it(
    process: str, argv: list[str], kind: str | None
) -> None:
    assert kind_of(process, argv) == kind


def test_a_main_process_that_does_not_serve_stays_as_it_is(server: Server) -> None:
    assert server.run("MainProcess", command="inspect").stdout == "plain []\n"
    assert server.attested() == []


def accepted(rates: list[float], uniform: list[float]) -> dict[tuple[int, int], int]:
    """Output of one request whose drafts are 10, 11, ...; replacements 20, 21, ...; bonus 99."""
    output: dict[tuple[int, int], int] = {}
    count = len(uniform)
    drafts, fallback = list(range(10, 10 + count)), list(range(20, 20 + count))
    accept(output, [count], drafts, np.array([[99]]), fallback, uniform, rates, [True])
    return output


@pytest.mark.parametrize(
    ("uniform", "tokens"),
    [
        ([0.0, 0.0], [10, 11, 99]),
        ([0.0, 0.9], [10, 21]),
        ([0.9, 0.0], [20]),
        ([0.5, 0.0], [20]),  # a draw equal to the rate is a rejection
    ],
)
def test_drafts_are_accepted_up_to_the_first_rejection(uniform: list[float], tokens: list[int]) -> None:
    output = accepted([0.5, 0.5], uniform)
    assert [output[0, position] for position in range(len(output))] == tokens


def test_only_the_wanted_requests_are_written_each_at_its_own_place() -> None:
    output: dict[tuple[int, int], int] = {}
    ends, drafts, bonus = [2, 2, 3], [10, 11, 12], np.array([[7], [8], [9]])
    accept(output, ends, drafts, bonus, [0, 0, 0], [0.0] * 3, [1.0, 1.0], [False, True, True])
    assert output == {(1, 0): 8, (2, 0): 12, (2, 1): 9}


@pytest.mark.parametrize("rates", [[0.9, 0.678], [0.5, 0.5], [1.0, 0.0], [0.2, 0.9, 0.9]])
def test_over_many_draws_the_acceptance_length_is_the_asked_one(rates: list[float]) -> None:
    """Expected: 1 + r1 + r1 r2 + ... tokens a step."""
    draw, steps = random.Random(0), 20_000
    output: dict[tuple[int, int], int] = {}
    count = len(rates)
    accept(
        output,
        [count * (step + 1) for step in range(steps)],
        [1] * (count * steps),
        np.ones((steps, 1), dtype=int),
        [1] * (count * steps),
        [draw.random() for _ in range(count * steps)],
        rates,
        [True] * steps,
    )
    expected = 1 + float(np.cumprod(rates).sum())
    assert len(output) / steps == pytest.approx(expected, rel=0.01)
