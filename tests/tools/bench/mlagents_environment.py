"""A virtual environment for ML-Agents' trainer, whose last release requires Python 3.10.

With those below it was seen to train under Python 3.11, in spite of what it asks for; so pip is told to install it
without its requirements, and to take each of them by itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.bench.environments import INSTALL_SECONDS, PeerEnvironment
from tests.tools.bench.measurement import MeasurementFailed, Unavailable
from tests.tools.bench.processes import REPOSITORY, Child

RELEASE: Final = "1.1.0"
NEWEST_PYTHON: Final = (3, 11)
"""The newest for which its numpy has a wheel."""
FIRST: Final = ("torch==2.13.0", "numpy==1.23.5")
NEEDED: Final = (
    "grpcio==1.53.2", "cattrs<1.7,>=1.1", "attrs", "pyyaml", "h5py", "tensorboard<2.12", "six", "filelock",
    "cloudpickle", "pillow", "setuptools<70", "onnx==1.14.1", "gym<0.27", "huggingface_hub",
)  # fmt: skip
LAST: Final = ("protobuf==3.20.3", "numpy==1.23.5")
"""Versions that the packages above replaced."""


@dataclass(frozen=True, slots=True)
class MLAgentsEnvironment(PeerEnvironment):
    """The environment; `requirements` are those of its first installation step."""

    def ensure(self, log: Path) -> str:
        """Installs what is missing and returns ML-Agents' version.

        Args:
            log: Where pip's output goes, one file a step.

        Raises:
            Unavailable: It cannot be installed here.
        """
        found = self.version()
        if found is not None:
            return found
        if sys.version_info[:2] > NEWEST_PYTHON:
            raise Unavailable(f"{self.distribution} {RELEASE} needs Python {'.'.join(map(str, NEWEST_PYTHON))} at most")
        folder = REPOSITORY / self.folder
        pip: list[str | Path] = [self.python, "-m", "pip"]
        wheels = folder / "wheels"
        download = [
            *pip, "download", "--quiet", "--no-deps", "--python-version", "3.10.12", "--only-binary=:all:", "-d", wheels,
            f"mlagents=={RELEASE}", f"mlagents-envs=={RELEASE}",
        ]  # fmt: skip
        try:
            _run("venv", [sys.executable, "-m", "venv", folder], log)
            _run("pip", [*pip, "install", "--quiet", *self.requirements], log)
            _run("pip", download, log)
            _run("pip", [*pip, "install", "--quiet", *NEEDED], log)
            _run("pip", [*pip, "install", "--quiet", *LAST], log)
            # Last: its presence says that the environment is whole.
            found_wheels = sorted(wheels.glob("mlagents*.whl"), reverse=True)
            _run("pip", [*pip, "install", "--quiet", "--no-deps", "--ignore-requires-python", *found_wheels], log)
        except MeasurementFailed as failure:
            raise Unavailable(f"{self.distribution} cannot be installed: {failure}") from None
        found = self.version()
        if found is None:
            raise Unavailable(f"{self.distribution} is not there after its installation; see {log}")
        return found


def _run(name: str, command: list[str | Path], log: Path) -> None:
    with Child(name, command, log) as child:
        child.wait_for_success(INSTALL_SECONDS)


ML_AGENTS = MLAgentsEnvironment(".venv-mlagents", "mlagents", FIRST)
