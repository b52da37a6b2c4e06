"""Imports point one way, between packages and inside of each; an idle poll pays for no JVM and no Arrow."""

import ast
from collections.abc import Iterator, Mapping
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "headwater"
ORDER = ["model", "config", "progress", "storage", "pg", "sources", "changes", "sinks", "engine", "services", "api", "cli", "web", "testing"]  # fmt: skip
RANK = {name: rank for rank, name in enumerate(ORDER)} | {"cli": ORDER.index("api") + 1, "web": ORDER.index("api") + 1}
FILES = sorted(ROOT.rglob("*.py"))


def imported(nodes: list[ast.stmt]) -> Iterator[str]:
    """The absolute names of modules that these statements import, themselves or in what they contain."""
    for statement in nodes:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, "imports are absolute"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import_time(tree: ast.Module) -> list[ast.stmt]:
    """Statements that run when the module is imported; `if TYPE_CHECKING:` does not."""

    def is_checking(node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")

    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in tree.body if not isinstance(node, functions) and not is_checking(node)]


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_imports_only_from_those_before_it(path):
    package = package_of(path)
    if package == "__init__":
        return
    assert package in RANK, f"{package} has no place in the order of packages: {ORDER}"
    for name in imported(ast.parse(path.read_text()).body):
        parts = name.split(".")
        if parts[0] != "headwater" or len(parts) == 1:
            continue
        other = parts[1] if parts[1] in RANK else "api"  # headwater's own names come from the API
        assert other == package or RANK[other] < RANK[package], f"{package} must not import {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "engine").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_engine_reaches_tables_through_the_lake(path):
    """`model/protocols/lake.py` is all that it knows of Iceberg."""
    assert not [
        name
        for name in imported(ast.parse(path.read_text()).body)
        if f"{name}.".startswith(("headwater.sinks.iceberg.", "headwater.config.sinks.iceberg."))
    ]


def test_the_children_of_a_package_import_each_other_one_way():
    """Modules and sub-packages of one folder form no cycle, not even by imports inside of functions."""
    modules = {dotted(path): path for path in FILES}
    imports = {
        name: {module for module in map(partial(module_of, modules), imported(unchecked(path))) if module}
        for name, path in modules.items()
    }
    for package in (name for name, path in modules.items() if path.name == "__init__.py"):
        edges: dict[str, set[str]] = {}
        for name, targets in imports.items():
            for target in targets:
                one, other = child(package, name), child(package, target)
                if one and other and one != other:
                    edges.setdefault(one, set()).add(other)
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            pytest.fail(f"{package}: {' → '.join(error.args[1])}")


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unchecked(path: Path) -> list[ast.stmt]:
    """All statements but those that only the type checker sees."""
    tree = ast.parse(path.read_text())
    return [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))]


def module_of(modules: Mapping[str, Path], name: str) -> str | None:
    """The module that `from a.b import c` loads: a.b.c, or a.b."""
    return next((each for each in (name, name.rpartition(".")[0]) if each in modules), None)


def child(package: str, name: str) -> str | None:
    return name.removeprefix(f"{package}.").split(".")[0] if name.startswith(f"{package}.") else None


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_importing_a_module_never_imports_spark(path):
    if package_of(path) == "testing":
        return
    tree = ast.parse(path.read_text())
    classes = [node for node in at_import_time(tree) if isinstance(node, ast.ClassDef)]
    plain = [node for node in at_import_time(tree) if not isinstance(node, ast.ClassDef)]
    for class_ in classes:
        plain += [node for node in class_.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert not [name for name in imported(plain) if name.split(".")[0] in {"pyspark", "py4j"}]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_adbc_is_an_oracle_of_the_tests_and_no_more(path):
    assert not [name for name in imported(ast.parse(path.read_text()).body) if name.startswith("adbc_")]


def test_every_module_begins_with_what_it_is():
    def has_code(path: Path) -> bool:
        return bool(path.read_text().strip())

    assert [str(path) for path in FILES if has_code(path) and not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_file_holds_two_subjects():
    assert [str(path) for path in FILES if len(path.read_text().splitlines()) > 400] == []
