"""Tests which package imports which, in the source and at run time."""

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from tests.architecture.tree import PACKAGES, ROOT, module_name, nodes, sources

WITHOUT_TORCH = (
    "rollcast",
    "actor_client",
    "learner.training.callbacks",
    "learner.cli.cli",
    "learner.shared.exits",
    "learner.shared.files",
    "learner.cli.operator",
    "learner.shared.plugins",
    "learner.cli.compare_runs",
    "learner.cli.comparison_report",
    "learner.start.list_runs",
    "learner.shared.settings",
    "learner.shared.observe",
    "learner.service.run",
    "learner.service.ingest",
    "learner.link",
    "learner.service.calls",
    "learner.service.web",
    "learner.service.web.learner_hooks",
    "learner.training.run.writers",
    "learner.service.policies.store",
    "learner.service.policies.broadcast",
)
"""Modules, and packages with all their modules, that must work where torch is not installed."""


def modules_of(name: str) -> list[str]:
    """Returns a module, or a package's every module but its `__main__`."""
    found = [module_name(path) for path in sources()]
    return [
        module
        for module in found
        if (module == name or module.startswith(f"{name}.")) and not module.endswith("__main__")
    ]


def printed_by(program: str, environment: Mapping[str, str] | None = None) -> str:
    """Returns the standard output of a program in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(modules: list[str]) -> set[str]:
    """Returns the top-level modules loaded in a fresh interpreter after importing these."""
    lines = "\n".join(f"import {module}" for module in modules)
    names = printed_by(f"{lines}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))")
    return set(names.split())


@pytest.mark.slow
def test_nothing_of_it_loads_torch() -> None:
    """Importing the packages that need no torch does not import torch."""
    modules = {name: modules_of(name) for name in WITHOUT_TORCH}
    assert all(modules.values()), f"{modules}: take off the list what does not exist, or put it back"
    lines = [
        f"import {module}\nif 'torch' in sys.modules: sys.exit(print({module!r}))"
        for module in chain(*modules.values())
    ]
    assert printed_by("\n".join(["import sys", *lines])) == "", "this module loads torch"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "foreign"),
    [
        ("actor_client", "learner torch tensorboard yaml onnx gymnasium PIL"),
        ("learner", "actor_client gymnasium"),
        ("rollcast", "learner actor_client pydantic structlog onnxruntime torch yaml rich"),
    ],
)
def test_a_package_loads_nothing_foreign(package: str, foreign: str) -> None:
    """Neither side imports the other or its libraries, and the contract almost nothing."""
    assert imported_by(modules_of(package)) & {*foreign.split()} == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", ["import actor_client.policy.graph", "import learner.training.export.check, onnxruntime"]
)
def test_nothing_is_told_to_the_maker_of_the_runtime(program: str, tmp_path: Path) -> None:
    """ONNX Runtime, which reports what it runs unless told otherwise, leaves no identifier and no queue of reports."""
    silent = {"CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}  # with these it reports nothing, or writes elsewhere
    environment = {name: value for name, value in os.environ.items() if name not in silent}
    printed_by(program, {**environment, "HOME": str(tmp_path)})
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("given", ["", "1"])
@pytest.mark.parametrize(
    "module",
    [
        "rollcast.v1.session_pb2_grpc",
        "actor_client.gym.app",
        "actor_client.unity.server",
        "learner.service.calls.server",
    ],
)
def test_grpc_is_loaded_without_its_support_for_forks(module: str, given: str) -> None:
    """The support crashes processes that environments fork; gRPC reads the variable when it is loaded. A user's value stays."""
    variable = "GRPC_ENABLE_FORK_SUPPORT"
    environment = {name: value for name, value in os.environ.items() if name != variable} | (
        {variable: given} if given else {}
    )
    look = f"type('', (), {{'find_spec': lambda name, *_: name == 'grpc' and print(os.environ['{variable}']) or None}})"
    assert (
        printed_by(f"import os, sys\nsys.meta_path.insert(0, {look})\nimport {module}", environment)
        == f"{given or 0}\n"
    )


def test_operators_commands_need_no_heavy_library() -> None:
    """They start at once, without gRPC, protobuf and what serves the page."""
    heavy = {"torch", "onnx", "numpy", "pydantic", "grpc", "google.protobuf", "aiohttp"}
    lines = f"import sys\nimport learner.cli.operator, learner.cli.status, learner.shared.observe.terminal\nprint(sorted({heavy} & {{*sys.modules}}))"
    assert printed_by(lines) == "[]\n"


@pytest.mark.slow
def test_the_actor_s_help_needs_no_heavy_library() -> None:
    """Help imports no inference, environment or wire library; tests/learner/cli/test_cli.py has the learner's."""
    help_text = "import contextlib\nwith contextlib.suppress(SystemExit): actor_client.cli.main(['--help'])"
    heavy = {"torch", "onnx", "onnxruntime", "gymnasium", "numpy", "pydantic", "structlog", "grpc"}
    program = f"import sys, actor_client.cli\n{help_text}\nprint('loaded', *sorted({heavy} & set(sys.modules)))"
    assert printed_by(program).endswith("\nloaded\n")


def test_the_packages_are_this_checkout() -> None:
    """The imported packages are those of this checkout."""
    for name, folder in PACKAGES.items():
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        assert Path(spec.origin).resolve() == folder / "__init__.py"


def test_no_modules_import_each_other() -> None:
    """No import cycle exists, including imports in functions and for type checkers."""
    names = {module_name(path) for path in sources()}
    imports = {module_name(path): _imported_modules(path) & names for path in sources()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def _imported_modules(path: Path) -> set[str]:
    """Returns the modules that a file imports anywhere; the packages they lie in are not counted."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found - {module_name(path)}
