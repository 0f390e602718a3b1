"""Tests that the project's declarations match its use."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from learner.shared.exits import ExitCode
from learner.start.init import SCHEMA_FILE, schema_text
from tests.architecture.tree import PACKAGES, ROOT, nodes, shown, sources

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
INSTALLED_WITH = {
    "rollcast": ("unity", "hub"),
    "learner": ("learner", "certs", "sweep", "wandb", "hub", "mlflow"),
    "actor_client": ("actor", "clients", "dm-env-rpc", "gym", "pettingzoo", "unity"),
}
"""The extras that bring what a package may import."""


COMES_WITH = {"pydantic_core": "pydantic"}
"""Modules of a distribution that another one pins exactly and hands on as its own."""
LEFT_TO_PYTHON = frozenset({"setuptools"})
"""Packages of a new virtual environment; their working versions depend on Python's."""


def requirements(*extras: str) -> list[Requirement]:
    """Returns the requirements of the base and of some extras."""
    return [
        Requirement(text) for text in (*PROJECT["dependencies"], *(item for extra in extras for item in EXTRAS[extra]))
    ]


def pins() -> dict[str, Version]:
    """Returns what constraints.txt pins."""
    pinned: dict[str, Version] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, separator, version = line.partition("==")
            assert separator, f"constraints.txt pins exact versions from an index, not {line!r}"
            pinned[canonicalize_name(name)] = Version(version)
    return pinned


def test_every_dependency_is_pinned_within_its_range() -> None:
    """Every pinned version is within the range in pyproject.toml."""
    pinned = pins()
    for requirement in requirements(*EXTRAS):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert version in requirement.specifier, (
            f"constraints.txt has {requirement.name} {version}, {requirement} is asked for"
        )


def test_what_the_pinned_packages_need_is_pinned_too() -> None:
    """All transitive dependencies are pinned."""
    pinned, waiting, seen = pins(), [(item.name, item.extras) for item in requirements(*EXTRAS)], set()
    while waiting:
        name, extras = waiting.pop()
        if (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        assert canonicalize_name(name) in pinned, f"{name} is needed, but is not in constraints.txt"
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            if needed.name in LEFT_TO_PYTHON:
                continue
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                waiting.append((needed.name, needed.extras))


def test_everything_imported_is_declared() -> None:
    """A package imports only the standard library, the contract, itself, and its extras."""
    distributions = importlib.metadata.packages_distributions()
    undeclared = {}
    for path in sources():
        (package,) = (name for name, folder in PACKAGES.items() if path.is_relative_to(folder))
        declared = {canonicalize_name(item.name) for item in requirements(*INSTALLED_WITH[package])}
        for name in _imports(path):
            top = name.partition(".")[0]
            if top in sys.stdlib_module_names or top in {package, "rollcast"}:
                continue
            known = distributions.get(COMES_WITH.get(top, top), [])
            # `google` is shared: protobuf and googleapis-common-protos both are declared.
            if not {canonicalize_name(found) for found in known} & declared:
                undeclared[f"{shown(path)}: {name}"] = known
    assert undeclared == {}


@pytest.mark.slow
def test_the_operators_commands_need_no_extra(tmp_path: Path) -> None:
    """Who asks a learner on another machine, or lists runs in a shared folder, needs the base alone."""
    base = {canonicalize_name(item.name) for item in requirements()}
    further = {canonicalize_name(item.name) for item in requirements(*EXTRAS)} - base
    distributions = importlib.metadata.packages_distributions()
    hidden = sorted(name for name, of in distributions.items() if {canonicalize_name(each) for each in of} <= further)
    assert {"torch", "yaml", "aiohttp"} <= set(hidden)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "generation").write_text("1")
    (tmp_path / "run" / ".lock").write_text("1")
    (tmp_path / "run" / "address.json").write_text('{"address": "127.0.0.1:1", "http": "127.0.0.1:1"}')
    asked = [["--control", "127.0.0.1:1"], ["run", "--results-dir", str(tmp_path)], ["--results-dir", str(tmp_path)]]
    called = [
        [name, *words] for name in ("status", "pause", "resume", "save", "drain", "healthcheck") for words in asked
    ]
    called += [["set", "--undo", *words] for words in asked]
    called += [["page", *words] for words in asked[1:]] + [["runs", *asked[2]], ["release", "actor", *asked[0]]]
    program = f"import sys\nsys.modules.update(dict.fromkeys({hidden}))\nfrom learner.cli.cli import main\n"
    program += f"print([int(main(words)) for words in {called}])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300, cwd=ROOT
    )
    codes = [int(ExitCode.UNREACHABLE)] * len(called)
    codes[-2] = int(ExitCode.OK)
    assert done.stdout.endswith(f"{codes}\n"), done.stderr


def test_the_changelog_knows_the_version() -> None:
    """The version of pyproject.toml is the newest heading in CHANGELOG.md."""
    headings = re.findall(r"^## \[?([0-9][^\]\s]*)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings
    assert headings[0] == PROJECT["version"]


NAMED_EXTRAS = re.compile(
    r"""(?:\binstall\(|missing_extra\(error, |EXTRA: Final = |needing_extra\("[\w-]+", |extras: str = )["']([\w,]+)["']"""
)


def test_messages_name_extras_that_a_wheel_has() -> None:
    """Install hints name existing extras, and say where this installation came from."""
    named = 0
    for path in sources():
        text = path.read_text(encoding="utf-8")
        assert "pip install 'rollcast[" not in text, shown(path)
        named += len(re.findall(r'needing_extra\("\w[\w-]*"\)', text))  # of the extras that are its default
        for extras in re.findall(NAMED_EXTRAS, text):
            assert set(extras.split(",")) <= set(EXTRAS), f"{shown(path)}: {extras}"
            named += 1
    assert named >= 17


def test_the_schema_of_run_files_is_committed() -> None:
    """The committed schema equals the generated one."""
    path = ROOT / "learner" / "run_files" / SCHEMA_FILE
    assert path.read_text(encoding="utf-8") == schema_text(), f"{shown(path)}: run make generate"


def _imports(path: Path) -> list[str]:
    names: list[str] = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.append(node.module)
    return names


def test_generated_code_is_not_run_with_a_later_major_version() -> None:
    """Protobuf refuses code that a generator two major versions older wrote, so its range has an end."""
    (protobuf,) = (each for each in requirements() if each.name == "protobuf")
    generated = (ROOT / "protos" / "rollcast" / "v1" / "session_pb2.py").read_text()
    found = re.search(r"Protobuf Python Version: (\d+)", generated)
    assert found is not None
    assert Version(f"{int(found[1]) + 1}.99") in protobuf.specifier
    assert Version(f"{int(found[1]) + 2}.0") not in protobuf.specifier
