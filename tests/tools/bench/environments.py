"""Virtual environments of the peers, whose requirements contradict Rollcast's."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.tools.bench.measurement import MeasurementFailed, Unavailable
from tests.tools.bench.processes import REPOSITORY, Child

INSTALL_SECONDS = 1800.0
_VERSION_SECONDS = 60.0
_VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """A virtual environment for one peer.

    Attributes:
        folder: Its name in the repository's root.
        distribution: The peer's distribution; its presence says that the environment is complete.
        requirements: What pip installs.
    """

    folder: str
    distribution: str
    requirements: tuple[str, ...]

    @property
    def python(self) -> Path:
        """Returns its interpreter."""
        return REPOSITORY / self.folder / "bin" / "python"

    def version(self) -> str | None:
        """Returns the installed version of the peer; None if it is not installed."""
        if not self.python.exists():
            return None
        found = subprocess.run(
            [self.python, "-c", _VERSION, self.distribution],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
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
        try:
            _run("venv", [sys.executable, "-m", "venv", REPOSITORY / self.folder], log)
            _run("pip", [self.python, "-m", "pip", "install", "--quiet", *self.requirements], log)
        except MeasurementFailed as failure:
            raise Unavailable(f"{self.distribution} cannot be installed: {failure}") from None
        version = self.version()
        if version is None:
            raise Unavailable(f"{self.distribution} is not there after its installation; see {log}")
        return version


def _run(name: str, command: list[str | Path], log: Path) -> None:
    with Child(name, command, log) as child:
        child.wait_for_success(INSTALL_SECONDS)


STABLE_BASELINES3 = PeerEnvironment(".venv-sb3", "stable-baselines3", ("torch==2.13.0", "stable-baselines3==2.9.*"))
SAMPLE_FACTORY = PeerEnvironment(".venv-sf", "sample-factory", ("torch==2.13.0", "sample-factory==2.1.1"))
