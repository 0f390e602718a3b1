"""The folder of the bench's files."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.tools.bench.processes import REPOSITORY


class Workplace:
    """A folder for logs, run folders, temporary files and the result.

    Args:
        root: The folder; made when it is missing.
    """

    def __init__(self, root: Path = REPOSITORY / "results" / "bench") -> None:
        self.root = root
        self.runs = root / "runs"
        self._temporary = root / "tmp"
        self._temporary.mkdir(parents=True, exist_ok=True)

    @property
    def result(self) -> Path:
        """Returns the path of the JSON file with all figures."""
        return self.root / "bench.json"

    @property
    def environment(self) -> Mapping[str, str]:
        """Returns environment variables of children, with a temporary folder."""
        return {"TMPDIR": str(self._temporary)}

    def log(self, name: str) -> Path:
        """Returns where the output of one process goes."""
        return self.root / "logs" / f"{name}.log"

    def clean(self) -> None:
        """Removes temporary files."""
        shutil.rmtree(self._temporary, ignore_errors=True)
