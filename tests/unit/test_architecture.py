"""The house's rules: imports point one way, pure parts stay pure, files stay small, rules are whole."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

BASE = Path(__file__).parents[2]
SCRIPTS = BASE / "scripts"
LIBRARY = SCRIPTS / "serve_repro"
MODULES = sorted(LIBRARY.rglob("*.py"))
PROGRAMS = sorted(SCRIPTS.glob("*.py"))
RULE_FILES = sorted((BASE / "rules").glob("*.smk"))

PURE = ("recipe", "plan", "runtimes", "runners")
"""Sub-packages that start nothing and touch no network: data in, data out."""

Graph = dict[str, set[str]]


def name_of(path: Path) -> str:
    """A module's dotted name; a package's is its folder's."""
    parts = path.relative_to(SCRIPTS).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, *, deep: bool) -> set[str]:
    """All dotted names that a file imports; `deep`: also inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree) if deep else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def module_graph() -> Graph:
    """Which of our modules imports which, at module level."""
    names = {name_of(path) for path in MODULES}
    graph: Graph = {}
    for path in MODULES:
        name = name_of(path)
        found = imported(path, deep=False) & names
        # `from package import module` does not use what the package itself imports.
        packages = {other for other in found if any(o.startswith(f"{other}.") for o in found)}
        graph[name] = found - packages - {name}
    return graph


def package_graph() -> Graph:
    """The same between sub-packages; a module that stands alone in the library is its own."""
    graph: Graph = {}
    for name, found in module_graph().items():
        if name == "serve_repro":
            continue
        own = name.split(".")[1]
        others = {other.split(".")[1] for other in found if other != "serve_repro"}
        graph.setdefault(own, set()).update(others - {own})
    return graph


def cycle(graph: Graph) -> list[str]:
    """Some way through a graph that comes back to where it started; empty if there is none."""
    done: set[str] = set()

    def walk(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            found = walk(other, [*way, node])
            if found:
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, []))), [])


def closure(graph: Graph, start: str) -> set[str]:
    """Everything that a module imports, directly or not."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += graph.get(node, ())
    return seen


def committed(*endings: str) -> list[Path]:
    """Files that git knows or would add, by ending."""
    run = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=BASE,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        pytest.skip("this is no git checkout: its files are not listed")
    return [BASE / name for name in run.stdout.splitlines() if name.endswith(endings)]


def test_a_cycle_would_be_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_modules_import_each_other_in_one_direction() -> None:
    assert cycle(module_graph()) == []


def test_sub_packages_import_each_other_in_one_direction() -> None:
    graph = package_graph()
    assert graph["launch"]
    assert cycle(graph) == []


@pytest.mark.parametrize("package", PURE)
def test_pure_parts_start_nothing_and_touch_no_network(package: str) -> None:
    """Not by themselves, nor through anything of ours that they import."""
    graph = module_graph()
    paths = {name_of(path): path for path in MODULES}
    for start in [name for name in graph if name.split(".")[1:2] == [package]]:
        for name in closure(graph, start):
            tops = {other.split(".")[0] for other in imported(paths[name], deep=True)}
            assert not tops & {"subprocess", "socket", "urllib", "psutil"}, f"{start} through {name}"
            assert name.split(".")[1:2] != ["launch"], f"{start} through {name}"


def test_what_follows_a_plan_does_not_read_the_recipe() -> None:
    """All later programs read the plan and never the recipe."""
    graph = module_graph()
    for name, found in graph.items():
        if name.split(".")[1:2] in (["launch"], ["client"], ["gates"], ["table"], ["point"]):
            assert "serve_repro.recipe.recipe" not in found, name
            assert "serve_repro.recipe.site" not in found, name


def test_files_are_small() -> None:
    sizes = {
        path.relative_to(BASE): len(path.read_text(encoding="utf-8").splitlines())
        for path in committed(".py", ".smk", "Snakefile")
        if path.exists()
    }
    assert len(sizes) > 50
    assert {path: lines for path, lines in sizes.items() if lines >= 400} == {}


def test_a_files_name_says_what_it_does() -> None:
    vague = re.compile(r"(^|_)(utils?|helpers?|common|misc|stuff|tools?)(_|$)")
    found = [path for path in committed(".py") if vague.search(path.stem)]
    assert found == []


def test_every_module_and_public_name_says_what_it_is() -> None:
    for path in [*MODULES, *PROGRAMS]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}: {node.name}"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_does_nothing_when_it_is_imported(path: Path) -> None:
    *body, last = ast.parse(path.read_text(encoding="utf-8")).body
    assert isinstance(last, ast.If), f"{path.name} ends without its guard"
    assert ast.unparse(last.test) == "__name__ == '__main__'"
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    for node in body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        assert docstring or isinstance(node, allowed), f"{path.name}:{node.lineno}"


def rules() -> Iterator[tuple[str, str]]:
    """(name, text) of every rule."""
    for path in [BASE / "Snakefile", *RULE_FILES]:
        text = path.read_text(encoding="utf-8")
        for part in re.split(r"^(?=(?:rule|checkpoint) \w+:)", text, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            end = next((i for i, line in enumerate(lines[1:], 1) if re.match(r"\S", line)), len(lines))
            yield lines[0].split()[1].rstrip(":"), "\n".join(lines[:end])


RULES = dict(rules())


def directives(text: str) -> set[str]:
    return set(re.findall(r"^    (\w+):", text, re.MULTILINE))


def test_all_rules_are_seen() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [BASE / "Snakefile", *RULE_FILES])
    assert len(RULES) == text.count("\nrule ") + text.count("\ncheckpoint ") > 10


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_a_docstring_and_no_code_of_its_own(name: str) -> None:
    documented = r'(rule|checkpoint) \w+:\n    """\S.*\."""\n'
    assert re.match(documented, RULES[name]), f"{name} has no docstring"
    forbidden = {"run", "script", "notebook", "wrapper", "retries", "group"}
    assert not directives(RULES[name]) & forbidden
    assert "service(" not in RULES[name]


@pytest.mark.parametrize("name", [name for name, text in RULES.items() if "shell" in directives(text)])
def test_a_rule_with_a_command_has_a_log_and_an_environment(name: str) -> None:
    has = directives(RULES[name])
    assert {"output", "log", "conda", "shell"} <= has
    assert "--log {log:q}" in RULES[name]
    (environment,) = re.findall(r'"\.\./(envs/[\w-]+/conda\.yaml)"', RULES[name])
    assert (BASE / environment).is_file()


def test_only_the_target_rule_has_no_command() -> None:
    assert [name for name, text in RULES.items() if "shell" not in directives(text)] == ["all"]


def test_every_program_of_a_rule_exists() -> None:
    used = {name for text in RULES.values() for name in re.findall(r"scripts/(\w+\.py)", text)}
    assert used
    assert {name for name in used if not (SCRIPTS / name).is_file()} == set()


def test_every_rule_file_is_part_of_the_story() -> None:
    story = (BASE / "Snakefile").read_text(encoding="utf-8")
    assert re.findall(r'include: "rules/(\w+\.smk)"', story)
    for path in RULE_FILES:
        assert f'include: "rules/{path.name}"' in story
        assert path.read_text(encoding="utf-8").startswith('"""'), f"{path.name} says what it is for"
