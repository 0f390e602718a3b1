"""Virtual environments of the peers, whose requirements contradict Rollcast's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.bench.measurement import MeasurementFailed, Unavailable
from tests.tools.bench.processes import REPOSITORY, Child

INSTALL_SECONDS: Final = 1800.0
_VERSION_SECONDS: Final = 60.0
_VERSION: Final = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
_ML_AGENTS: Final = "1.1.0"


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """A virtual environment for one peer.

    Attributes:
        folder: Its name in the repository's root.
        distribution: The peer's distribution; its presence says that the environment is complete.
        installations: Arguments of `pip install`, one call after another.
        newest_python: The newest version of Python for which the peer can be installed; None for this one.
    """

    folder: str
    distribution: str
    installations: tuple[tuple[str, ...], ...]
    newest_python: tuple[int, int] | None = None

    @property
    def python(self) -> Path:
        """Returns its interpreter."""
        return REPOSITORY / self.folder / "bin" / "python"

    def version(self) -> str | None:
        """Returns the installed version of the peer; None if it is not installed."""
        if not self.python.exists():
            return None
        command: list[str | Path] = [self.python, "-c", _VERSION, self.distribution]
        found = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False)
        return found.stdout.strip() if found.returncode == 0 else None

    def ensure(self, log: Path) -> str:
        """Installs what is missing and returns the version of the peer.

        Args:
            log: Where pip's output goes.

        Raises:
            Unavailable: It cannot be installed here.
        """
        version = self.version()
        if version is not None:
            return version
        if self.newest_python is not None and sys.version_info[:2] > self.newest_python:
            raise Unavailable(f"{self.distribution} needs Python {'.'.join(map(str, self.newest_python))} at most")
        try:
            _run("venv", [sys.executable, "-m", "venv", REPOSITORY / self.folder], log)
            for arguments in self.installations:
                _run("pip", [self.python, "-m", "pip", "install", "--quiet", *arguments], log)
        except MeasurementFailed as failure:
            raise Unavailable(f"{self.distribution} cannot be installed: {failure}") from None
        version = self.version()
        if version is None:
            raise Unavailable(f"{self.distribution} is not there after its installation; see {log}")
        return version


def _run(name: str, command: list[str | Path], log: Path) -> None:
    with Child(name, command, log) as child:
        child.wait_for_success(INSTALL_SECONDS)


STABLE_BASELINES3: Final = PeerEnvironment(
    ".venv-sb3", "stable-baselines3", (("torch==2.13.0", "stable-baselines3==2.9.*"),)
)
SAMPLE_FACTORY: Final = PeerEnvironment(".venv-sf", "sample-factory", (("torch==2.13.0", "sample-factory==2.1.1"),))
ML_AGENTS: Final = PeerEnvironment(
    ".venv-mlagents",
    "mlagents",
    (
        ("torch==2.13.0", "numpy==1.23.5"),
        (
            "grpcio==1.53.2", "cattrs<1.7,>=1.1", "attrs", "pyyaml", "h5py", "tensorboard<2.12", "six", "filelock",
            "cloudpickle", "pillow", "setuptools<70", "onnx==1.14.1", "gym<0.27", "huggingface_hub",
        ),
        ("protobuf==3.20.3", "numpy==1.23.5"),  # which the packages above replaced
        ("--no-deps", "--ignore-requires-python", f"mlagents-envs=={_ML_AGENTS}", f"mlagents=={_ML_AGENTS}"),
    ),
    newest_python=(3, 11),  # for which its numpy has a wheel
)  # fmt: skip
"""ML-Agents' last release requires Python 3.10. With these packages it trains under 3.11 too, so pip installs it without its
requirements, and each of them by itself."""
