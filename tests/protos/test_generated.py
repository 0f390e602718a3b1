"""Tests that the committed code equals the .proto files and the contract is kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
FROZEN = Path(__file__).with_name("rollcast-v1.binpb")
BUF = Path(sys.executable).with_name("buf")


def generated(folder: Path) -> dict[str, bytes]:
    """Returns every generated file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*_pb2*.py*") if path.is_file()
            and "__pycache__" not in path.parts}  # fmt: skip


def buf(arguments: list[str], folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Runs buf with its own cache."""
    return subprocess.run(
        [BUF, *arguments],
        cwd=folder,
        env={**os.environ, "BUF_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
def test_the_committed_code_is_up_to_date(tmp_path: Path) -> None:
    """Regenerating changes no byte, also without the environment on the path."""
    subprocess.run(
        [sys.executable, PROTOS / "generate.py", tmp_path],
        env={"PATH": os.defpath, "HOME": str(tmp_path)},
        capture_output=True,
        timeout=100,
        check=True,
    )
    assert generated(tmp_path) == generated(PROTOS)


@pytest.mark.parametrize(
    ("package", "pattern"),
    [
        ("protobuf", r"^# Protobuf Python Version: ([0-9.]+)$"),
        ("grpcio", r"^GRPC_GENERATED_VERSION = '([0-9.]+)'$"),
    ],
)
def test_lower_bounds_are_those_of_the_generated_code(package: str, pattern: str) -> None:
    """The lower bounds in pyproject.toml are those that the generated code requires; protobuf also has a ceiling."""
    text = "\n".join(path.decode() for path in generated(PROTOS).values())
    stated = set(re.findall(pattern, text, re.MULTILINE))
    assert len(stated) == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [Requirement(entry) for entry in project["dependencies"]]
    (requirement,) = (entry for entry in requirements if entry.name == package)
    bounds = {item.operator: Version(item.version) for item in requirement.specifier}
    least = Version(stated.pop())
    assert bounds[">="] == least
    assert package != "protobuf" or bounds["<"] == Version(str(least.major + 2)), "it runs with the next major version"


@pytest.mark.slow
def test_the_proto_files_keep_the_rules_of_style(tmp_path: Path) -> None:
    """Buf's STANDARD and COMMENTS rules pass."""
    result = buf(["lint"], ROOT, tmp_path)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.slow
def test_nothing_that_was_promised_is_broken(tmp_path: Path) -> None:
    """Compared with version 1 as it was frozen, fields and values were only added."""
    result = buf(["breaking", "--against", str(FROZEN)], ROOT, tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
