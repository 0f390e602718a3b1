"""``training_status.json``: ML-Agents' list of checkpoints, lessons and ratings, written at each checkpoint."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import structlog

from learner.common.files import read_regular, write_file

STATS_FORMAT_VERSION = "0.3.0"
_METADATA = "metadata"
_MAX_BYTES = 64 * 2**20

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One checkpoint in the list.

    Attributes:
        steps: trainer steps.
        file_path: the model, or the ``.pt`` file where no model could be exported.
        reward: mean episode return since the last update, or of the newest episodes if none has ended since; None
            before the first.
        creation_time: seconds since the epoch.
        auxillary_file_paths: its other files. (The spelling is ML-Agents'.)
    """

    steps: int
    file_path: str
    reward: float | None
    creation_time: float
    auxillary_file_paths: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the entry with ML-Agents' keys."""
        return {
            "steps": self.steps,
            "file_path": self.file_path,
            # JSON has no number that is none
            "reward": self.reward if self.reward is not None and math.isfinite(self.reward) else None,
            "creation_time": self.creation_time,
            "auxillary_file_paths": list(self.auxillary_file_paths),
        }

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Returns the entry, or None if that is not one."""
        if not isinstance(value, Mapping):
            return None
        steps, file_path, reward = value.get("steps"), value.get("file_path"), value.get("reward")
        created, others = value.get("creation_time"), value.get("auxillary_file_paths")
        if type(steps) is not int or not isinstance(file_path, str) or not isinstance(others, list):
            return None
        if not isinstance(created, int | float) or not (reward is None or isinstance(reward, int | float)):
            return None
        return cls(steps, file_path, reward, float(created), tuple(str(other) for other in others))


@dataclass(frozen=True, slots=True)
class BestEntry:
    """The best checkpoint of a behavior.

    Attributes:
        entry: as checkpoints are listed; its reward is what it was chosen by.
        measure: ``evaluation`` (mean return of one) or ``training`` (mean return of the newest training episodes).
        revision: of the lessons it was measured under: returns of another lesson compare with nothing.
    """

    entry: CheckpointEntry
    measure: str
    revision: int

    def is_beaten_by(self, reward: float, measure: str, revision: int) -> bool:
        """Whether another measurement takes its place: it is better, or of another kind or a later lesson."""
        if (measure, revision) != (self.measure, self.revision):
            return True
        return self.entry.reward is None or reward > self.entry.reward

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as it is listed."""
        return {**self.entry.to_json(), "measure": self.measure, "lesson_revision": self.revision}

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Returns the entry, or None if that is not one."""
        entry = CheckpointEntry.from_json(value)
        if entry is None or not isinstance(value, Mapping):
            return None
        measure, revision = value.get("measure"), value.get("lesson_revision")
        return cls(entry, measure, revision) if isinstance(measure, str) and type(revision) is int else None


class TrainingStatus:
    """The status file of a run, in memory.

    Args:
        sections: what the file held, without its metadata.
    """

    def __init__(self, sections: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._sections: dict[str, dict[str, Any]] = {name: dict(values) for name, values in (sections or {}).items()}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the file. One that is missing is empty; one that is damaged too, with a warning: no run ends for it."""
        try:
            document = json.loads(read_regular(path, _MAX_BYTES))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, RecursionError) as error:
            log.warning("the training status cannot be read and is begun anew", file=str(path), reason=str(error))
            return cls()
        if not isinstance(document, dict):
            log.warning("the training status is not a map and is begun anew", file=str(path))
            return cls()
        return cls({name: part for name, part in document.items() if name != _METADATA and isinstance(part, dict)})

    def checkpoints(self, behavior: str) -> list[CheckpointEntry]:
        """Returns the checkpoints of a behavior, by steps."""
        listed = self._sections.get(behavior, {}).get("checkpoints")
        entries = [CheckpointEntry.from_json(value) for value in listed] if isinstance(listed, list) else []
        return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.steps)

    def set_checkpoints(self, behavior: str, entries: list[CheckpointEntry]) -> None:
        """Replaces the checkpoints of a behavior."""
        self._section(behavior)["checkpoints"] = [entry.to_json() for entry in entries]

    def set_final(self, behavior: str, entry: CheckpointEntry) -> None:
        """Sets the checkpoint that the run ended with."""
        self._section(behavior)["final_checkpoint"] = entry.to_json()

    def set_best(self, behavior: str, best: BestEntry) -> None:
        """Sets the best checkpoint of a behavior."""
        self._section(behavior)["best_checkpoint"] = best.to_json()

    def best(self, behavior: str) -> BestEntry | None:
        """Returns the best checkpoint of a behavior; None before there is one."""
        return BestEntry.from_json(self._sections.get(behavior, {}).get("best_checkpoint"))

    def set_lesson(self, parameter: str, lesson: int) -> None:
        """Sets the number of the lesson of an environment parameter."""
        self._section(parameter)["lesson_num"] = lesson

    def lesson(self, parameter: str) -> int | None:
        """Returns the number of the lesson of an environment parameter."""
        value = self._sections.get(parameter, {}).get("lesson_num")
        return value if type(value) is int else None

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all.

        Raises:
            WriteFailed: it cannot be written.
        """
        # The metadata last: a behavior could bear that name.
        text = json.dumps({**self._sections, _METADATA: _metadata()}, indent=4, ensure_ascii=False)
        write_file(path, f"{text}\n".encode("utf-8", "replace"))

    def _section(self, name: str) -> dict[str, Any]:
        return self._sections.setdefault(name, {})


def _metadata() -> dict[str, str]:
    # ML-Agents compares the versions and only warns when they differ.
    return {
        "stats_format_version": STATS_FORMAT_VERSION,
        "mlagents_version": f"rollcast-{importlib.metadata.version('rollcast')}",
        "torch_version": importlib.metadata.version("torch"),
    }
