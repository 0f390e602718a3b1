"""Tests the contents of the repository."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

from tests.architecture.tree import (
    IGNORED_FOLDERS,
    ROOT,
    nodes,
    own_files,
    python_files,
    shown,
    sources,
    text_in,
)

TOP_LEVEL = frozenset(
    {"protos", "learner", "actor_client", "tests", "deploy", "docker-compose.yml", "pyproject.toml", "constraints.txt"}
    | {
        "docker-compose.override.yml",
        "buf.yaml",
        "Makefile",
        "tasks.py",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "DECISIONS.md",
        "SECURITY.md",
        "LICENSE",
    }
)
FORBIDDEN_MODULES = frozenset({"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"})
FOREIGN_HOSTS = re.compile(
    # Written in two halves, so that this file does not name them either.
    "|".join(
        re.escape(name + end)
        for name, end in (
            ("pypi", ".org"),
            ("pythonhosted", ".org"),
            ("anaconda", ".org"),
            ("npmjs", ".org"),
            ("golang", ".org"),
            ("crates", ".io"),
            ("ghcr", ".io"),
            ("quay", ".io"),
            ("docker", ".io/"),
            ("docker", ".com"),
            ("mirrors", "."),
            ("artifactory", "."),
        )
    )
)
METHODS = frozenset({"load", "system", "popen", "unsafe_load", "full_load"})
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(?:work|root|home|Users|opt/pypi|opt/wheels)(?:/|\b)")


def test_the_top_level_is_what_was_agreed() -> None:
    """The top level has only the five folders, the agreed files, dot-entries and what git ignores."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert found - TOP_LEVEL - IGNORED_FOLDERS - ignored == set()


def test_no_code_is_made_from_data() -> None:
    """No code unpickles, evaluates text, loads YAML or arrays with objects, or runs a shell."""
    assert [place for path in sources() for place in _places(path, _runs_data)] == []


def test_weights_are_loaded_as_weights() -> None:
    """Every `torch.load` has `weights_only=True`."""
    loading = [path for path in python_files() if "load(" in text_in(path) and "torch" in text_in(path)]
    assert [place for path in loading for place in _places(path, _loads_more_than_weights)] == []


def test_no_error_disappears() -> None:
    """No handler catches all exceptions and does nothing."""
    assert [place for path in sources() for place in _places(path, _swallows)] == []


def test_no_module_keeps_changing_state() -> None:
    """No module uses `global`."""
    assert [place for path in sources() for place in _places(path, lambda node: isinstance(node, ast.Global))] == []


def test_no_other_machine_is_needed() -> None:
    """No file names a package registry or mirror."""
    assert _hits(FOREIGN_HOSTS) == []


def test_no_path_of_one_machine() -> None:
    """No file names a path of one machine."""
    assert _hits(MACHINE_PATHS) == []


def _hits(pattern: re.Pattern[str]) -> list[str]:
    """Returns every place that matches, in text that a person wrote."""
    found = []
    for path in own_files():
        if path == Path(__file__).resolve() or path.suffix in {".onnx", ".npz", ".pt", ".bin", ".png"}:
            continue
        if not pattern.search(text_in(path)):
            continue
        for number, line in enumerate(text_in(path).splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{shown(path)}:{number}: {line.strip()[:100]}")
    return found


def _places(path: Path, is_fault: Callable[[ast.AST], bool]) -> list[str]:
    """Returns where a syntax tree has nodes that are a fault."""
    return [f"{shown(path)}:{getattr(node, 'lineno', 0)}" for node in nodes(path) if is_fault(node)]


def _loads_more_than_weights(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and _called(node) in {"torch.load", "torch.jit.load"}
        and not _is_true(node, "weights_only")
    )


def _swallows(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and _catches_all(node) and isinstance(node.body[0], ast.Pass)


def _runs_data(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in FORBIDDEN_MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] in FORBIDDEN_MODULES
    if not isinstance(node, ast.Call):
        return False
    name = _called(node)
    return (
        name in {"eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
        or _is_true(node, "allow_pickle")
        or _is_true(node, "shell")
    )


def _called(node: ast.Call) -> str:
    """Returns the called name, with what it belongs to, if that is a name too."""
    func = node.func
    if isinstance(func, ast.Name):
        return func.id
    return f"{ast.unparse(func.value)}.{func.attr}" if isinstance(func, ast.Attribute) and func.attr in METHODS else ""


def _is_true(node: ast.Call, keyword: str) -> bool:
    values = [item.value for item in node.keywords if item.arg == keyword]
    return any(isinstance(value, ast.Constant) and value.value is True for value in values)


def _catches_all(node: ast.ExceptHandler) -> bool:
    return node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
