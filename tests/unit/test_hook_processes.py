"""Which processes a hook reaches: vLLM's own however they are started, and no helper."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from .hook_server import Server, without_patches

HELPERS = ["rocm_agent_enumerator", "rocminfo", "hipcc", "pip"]
"""Programs that ROCm and compilers start from within a server; each is a Python program somewhere."""

HELPER = """#!{python}
import sys
heavy = {{"torch", "vllm", "aiter", "numpy"}} & set(sys.modules)
hooks = [name for name in sys.modules if name.startswith("serve_repro_hooks")]
print(sorted(heavy), hooks)
"""

CHILDREN = """
import importlib.metadata, multiprocessing, os, sys


def load_plugins():
    for plugin in importlib.metadata.entry_points(group="vllm.general_plugins"):
        plugin.load()()


def serve(loads):
    if loads:
        load_plugins()
    from victim import part
    print(multiprocessing.current_process().name, part.answer(), flush=True)


if __name__ == "__main__":
    method, loaded_before, loads, *names = sys.argv[2:]
    context = multiprocessing.get_context(method)
    if loaded_before == "yes":
        load_plugins()  # as the server does, before it starts its engine
    for name in names:
        child = context.Process(target=serve, args=(loads == "yes",), name=name)
        child.start()
        child.join()
        assert child.exitcode == 0, child.exitcode
"""

AGAIN = """
import importlib.metadata
def install():
    from victim import part
    before = part.answer
    part.answer = lambda: before() + ", patched"
    for plugin in importlib.metadata.entry_points(group="vllm.general_plugins"):
        plugin.load()()  # an import on the way may make vLLM load plugins
    return ["part.answer"]
"""


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def started(server: Server, *command: str) -> subprocess.CompletedProcess[str]:
    """A process in a rank's environment; it must end well."""
    run = subprocess.run(
        command, env=server.env(), capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run


def children(server: Server, method: str, *names: str, before: str = "no", loads: str = "yes") -> str:
    """What children say that were started in this way by a server; `-m` as vLLM may be."""
    (server.folder / "packages/server_main.py").write_text(CHILDREN, encoding="utf-8")
    words = [sys.executable, "-m", "server_main", "serve", method, before, loads, *names]
    return started(server, *words).stdout


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_program_installs_nothing_and_imports_nothing(server: Server, name: str) -> None:
    path = server.folder / name
    path.write_text(HELPER.format(python=sys.executable), encoding="utf-8")
    path.chmod(0o755)
    assert started(server, str(path)).stdout == "[] []\n"
    assert server.attested() == []


def test_pip_and_an_empty_program_install_nothing(server: Server) -> None:
    """pip lists all entry points that it finds, and calls none."""
    started(server, sys.executable, "-m", "pip", "--disable-pip-version-check", "list")
    started(server, sys.executable, "-c", "pass")
    assert server.attested() == []


def test_the_hook_folder_adds_no_module_to_an_interpreters_start(server: Server) -> None:
    words = [sys.executable, "-c", "import sys; print(sorted(sys.modules))"]
    with_hooks = started(server, *words).stdout
    env = without_patches(server.env())
    del env["PYTHONPATH"]
    plain = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert with_hooks == plain.stdout


def test_a_hundred_children_at_once_start_no_more_and_install_nothing(server: Server) -> None:
    """An earlier import at start made every child start children of its own."""
    begin = time.monotonic()
    words = [sys.executable, "-c", "import sys; print(len(sys.modules))"]
    running = [
        subprocess.Popen(words, env=server.env(), stdout=subprocess.PIPE, text=True) for _ in range(100)
    ]
    said = [process.communicate(timeout=120)[0] for process in running]
    assert {process.returncode for process in running} == {0}
    assert len(set(said)) == 1
    assert server.attested() == []
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_workers_are_patched_however_they_are_started(server: Server, method: str) -> None:
    said = children(server, method, "VllmWorker-0", "Process-1", "EngineCore")
    assert said == "VllmWorker-0 patched\nProcess-1 plain\nEngineCore plain\n"
    (line,) = server.attested()
    assert (line["process"], line["installed"]) == ("worker", True)


def test_a_forked_worker_is_patched_though_vllm_believes_its_plugins_are_loaded(server: Server) -> None:
    """The mark is inherited with the memory: nobody calls the entry point in the child."""
    server.processes = ["worker"]
    server.set()
    said = children(server, "fork", "VllmWorker-0", "Process-1", before="yes", loads="no")
    assert said == "VllmWorker-0 patched\nProcess-1 plain\n"
    (line,) = server.attested()
    assert line["process"] == "worker"


def test_a_forked_child_of_a_patched_server_says_so_for_itself(server: Server) -> None:
    said = children(server, "fork", "VllmWorker-0", before="yes", loads="yes")
    assert said == "VllmWorker-0 patched\n"
    lines = server.attested()
    assert [line["process"] for line in lines] == ["api", "worker"]
    assert len({line["pid"] for line in lines}) == 2


def test_loading_plugins_again_on_the_way_or_afterwards_installs_once(server: Server) -> None:
    server.set(AGAIN)
    said = children(server, "fork", "VllmWorker-0", before="yes", loads="yes")
    assert said == "VllmWorker-0 plain, patched\n"
    assert [line["process"] for line in server.attested()] == ["api", "worker"]
