"""CartPole that counts its steps itself, in a file that survives a killed actor, so that no book is believed."""

from __future__ import annotations

import mmap
import os
import uuid
from pathlib import Path
from typing import Any

import gymnasium

VARIABLE = "CHAOS_STEPS"
"""Names the folder of the files."""
_BYTES = 8


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of one copy."""

    def __init__(self, env: gymnasium.Env[Any, Any], folder: Path) -> None:
        super().__init__(env)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / uuid.uuid4().hex
        path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._count = mmap.mmap(file.fileno(), _BYTES)
        self._steps = 0

    def step(self, action: Any) -> Any:
        """Takes a step, and counts it once it was taken."""
        found = super().step(action)
        self._steps += 1
        self._count[:_BYTES] = self._steps.to_bytes(_BYTES, "little")
        return found


def make() -> Counted:
    """Returns a copy."""
    return Counted(gymnasium.make("CartPole-v1"), Path(os.environ[VARIABLE]))


def counted_steps(folder: Path) -> int:
    """Returns the steps that all copies have taken."""
    return sum(int.from_bytes(path.read_bytes(), "little") for path in folder.iterdir())
