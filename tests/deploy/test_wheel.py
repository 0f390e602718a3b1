"""Tests that wheel and sdist train outside a clone.

Each version of Python gets a new virtual environment with the wheel in it, and nothing of this clone on its path. What the wheel
depends on comes from an environment that `make venv` made for that version: the one of these tests, or `.venv-3.13` made by
`make venv PYTHON=python3.13 VENV=.venv-3.13`. A version without one gets an actor alone, from the package index, which joins a
learner of this version.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from learner.shared.observe.address import read_addresses
from tests.documents import commands, section
from tests.e2e.processes import command_environment, wait_until

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


class Distributions(NamedTuple):
    """The files of a release."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Builds both from this clone."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], ROOT)
    return Distributions(next(folder.glob("*.whl")), next(folder.glob("*.tar.gz")))


def run(command: Sequence[str | Path], folder: Path, *, seconds: float = 110.0) -> str:
    """Runs a command, which must succeed, without this clone on its path, and returns its output."""
    environment = command_environment()
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@cache
def interpreter(version: str) -> Path | None:
    """Returns the interpreter of a version, if it is here: these tests' own, on the path, or below pyenv."""
    if version == OWN:
        return Path(sys.base_prefix, "bin", "python3")
    named = f"python{version}"
    found = [Path(folder, named) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    found += sorted(
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin/{named}")
    )
    return next(
        (path for path in found if path.exists() and path.parent.name != "shims"), None
    )  # they may lead nowhere


def site_packages(version: str) -> Path | None:
    """Returns where an environment of this version has what Rollcast depends on, if there is one."""
    if version == OWN:
        return Path(sysconfig.get_path("purelib"))
    folder = ROOT / f".venv-{version}" / "lib" / f"python{version}" / "site-packages"
    return folder if folder.exists() else None


def versions_here() -> list[str]:
    """Returns the versions that can be tested here: an interpreter is found, and what Rollcast depends on too."""
    has_index = not os.environ.get("PIP_NO_INDEX")
    return [version for version in VERSIONS if interpreter(version) and (site_packages(version) or has_index)]


class Installed:
    """A new virtual environment with the wheel in it.

    Args:
        folder: Of the environment.
        version: Of its Python.
        distribution: What is installed.
        extras: Taken from the index with all they need; without any, dependencies come from `site_packages`.
    """

    def __init__(self, folder: Path, version: str, distribution: Path, extras: str = "") -> None:
        python = interpreter(version)
        assert python is not None
        self.bin = folder / "bin"
        run([python, "-m", "venv", "--without-pip", folder], folder.parent)
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--quiet"]
        if extras:
            run([*pip, f"{distribution}[{extras}]"], folder.parent)
            return
        run([*pip, "--no-deps", "--no-index", distribution], folder.parent)
        # A path in a .pth file takes no notice of the .pth files there: the clone, which is installed by one, stays out.
        (folder / "lib" / f"python{version}" / "site-packages" / "dependencies.pth").write_text(
            f"{site_packages(version)}\n"
        )

    def start(self, command: str, *arguments: str, folder: Path) -> subprocess.Popen[str]:
        """Starts one of the commands."""
        environment = command_environment() | {"PYTHONSAFEPATH": "1"}
        with (folder / f"{command}.log").open("w") as log:
            return subprocess.Popen(
                [self.bin / command, *arguments],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )


def train(learner: Installed, actor: Installed, folder: Path) -> None:
    """Trains CartPole for some thousand steps, from the run file that `init` writes."""
    folder.mkdir()
    run([learner.bin / "rollcast", "init", "cartpole"], folder)
    arguments = ["--address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--set", "behaviors.CartPole.max_steps=6000"]
    processes = [learner.start("rollcast", "serve", "cartpole.yaml", *arguments, folder=folder)]
    try:
        found = wait_until(
            lambda: read_addresses(folder / "results" / "cartpole"), "the learner listens", said=lambda: said(folder)
        )
        assert found is not None
        gym = ["gym", "--env", "CartPole-v1", "--num-envs", "8", "--learner", found.address]
        processes.append(actor.start("rollcast", "act", *gym, folder=folder))
        assert [process.wait(100) for process in processes] == [0, 0], said(folder)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert (folder / "results" / "cartpole" / "CartPole.onnx").stat().st_size > 0


def said(folder: Path) -> str:
    """Returns the ends of both logs."""
    return "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("*.log")))


@pytest.fixture(scope="module")
def own(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Installs the wheel in an environment of these tests' Python version."""
    return Installed(tmp_path_factory.mktemp("own") / "venv", OWN, built.wheel)


@pytest.mark.parametrize("version", versions_here())
def test_the_wheel_trains(version: str, built: Distributions, own: Installed, tmp_path: Path) -> None:
    """Learner and actor of the wheel train, or its actor alone if torch is not available for the version."""
    if version == OWN:
        train(own, own, tmp_path / "run")
    elif site_packages(version) is not None:
        both = Installed(tmp_path / "venv", version, built.wheel)
        train(both, both, tmp_path / "run")
    else:
        train(own, Installed(tmp_path / "venv", version, built.wheel, "actor,gym"), tmp_path / "run")


def test_the_wheel_is_found_and_not_the_clone(own: Installed, tmp_path: Path) -> None:
    """The imported packages are those of the wheel, not the clone."""
    program = "import rollcast, learner, actor_client as a; print(rollcast.__file__, learner.__file__, a.__file__)"
    for path in run([own.bin / "python", "-c", program], tmp_path).split():
        assert Path(path).is_relative_to(own.bin.parent)


def test_the_sdist_installs_as_the_wheel_does(built: Distributions, tmp_path: Path) -> None:
    """A wheel built from the source distribution has the same files."""
    run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", built.sdist],
        tmp_path,
    )
    assert contents(next(tmp_path.glob("*.whl"))) == contents(built.wheel)


@pytest.mark.parametrize("extras", ["", "learner", "actor dm-env-rpc gym pettingzoo unity boards video certs"])
def test_the_lowest_versions_can_be_installed_together(extras: str) -> None:
    """Pip finds a set of versions with the lower bound of each requirement; torch has too many gigabytes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for name in extras.split() for each in project["optional-dependencies"][name]),
    ]
    lowest = [re.sub(r">=([\d.]+).*", r"==\1", each) for each in wanted if not each.startswith("torch")]
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run([*pip, *lowest], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [each for each in commands(section("README.md", "Install")) if each[:2] == ["pip", "install"]],
    ids=" ".join,
)
def test_the_printed_installs_are_accepted(command: list[str]) -> None:
    """Pip finds the extras of each printed command and all their requirements in this environment."""
    pip, install, *what = command
    words = [sys.executable, "-m", pip, install, "--dry-run", "--no-index", "--no-build-isolation", *what]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr
    assert "Would install rollcast-" in done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    """Returns the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_what_is_needed_outside_a_clone(built: Distributions) -> None:
    """The wheel has three packages with generated code, annotations, run files and their schema."""
    names = contents(built.wheel).keys()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "rollcast",
        "learner",
        "actor_client",
    }
    examples = {f"learner/run_files/{path.name}" for path in (ROOT / "learner" / "run_files").iterdir()}
    assert len(examples) > 10
    assert examples <= names
    assert {
        "rollcast/py.typed",
        "rollcast/unity/communicator_objects/agent_pb2.pyi",
        "learner/service/web/page.html",
    } <= names
    with tarfile.open(built.sdist) as archive:
        assert not [name for name in archive.getnames() if "__pycache__" in name or name.endswith(".demo")]
