"""``training_status.json``: ML-Agents' list of checkpoints, lessons and ratings, written at each checkpoint."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import structlog
from rollcast.files import read_regular

from learner.shared.files import write_file

STATS_FORMAT_VERSION = "0.3.0"
_METADATA = "metadata"
_MAX_BYTES = 64 * 2**20
_STARTED_OVER = "the list of checkpoints starts empty"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One checkpoint in the list.

    Attributes:
        steps: Steps of the trainer.
        file_path: The model, or the ``.pt`` file if no model could be exported.
        reward: Mean episode return since the last update, or of the newest episodes if none has ended since; None
            before the first episode.
        creation_time: Seconds since the epoch.
        auxillary_file_paths: Further files. (The spelling is ML-Agents'.)
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
            # JSON cannot represent NaN or infinity
            "reward": self.reward if self.reward is not None and math.isfinite(self.reward) else None,
            "creation_time": self.creation_time,
            "auxillary_file_paths": list(self.auxillary_file_paths),
        }

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Returns the entry, or None if the value is not one."""
        if not isinstance(value, Mapping):
            return None
        steps, file_path, others = value.get("steps"), value.get("file_path"), value.get("auxillary_file_paths")
        if type(steps) is not int or not isinstance(file_path, str) or not isinstance(others, list):
            return None
        created, reward = _number(value.get("creation_time")), _number(value.get("reward"))
        if created is None or (reward is None and value.get("reward") is not None):
            return None
        return cls(steps, file_path, reward, created, tuple(str(other) for other in others))


def _number(value: object) -> float | None:
    """Returns a number of JSON; None for anything else, and for an integer that no float represents."""
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class BestEntry:
    """The best checkpoint of a behavior.

    Attributes:
        entry: Entry as in the list of checkpoints; its reward decided the choice.
        measure: ``evaluation`` (mean return of an evaluation) or ``training`` (mean return of the newest training
            episodes).
        revision: Revision of the lessons under which it was measured: returns of different lessons are not comparable.
        principals: Number of principals whose actors measured it; 0 if actors were not identified.
    """

    entry: CheckpointEntry
    measure: str
    revision: int
    principals: int = 0

    def is_beaten_by(self, reward: float, measure: str, revision: int, principals: int = 0) -> bool:
        """Returns whether another measurement replaces it: it is better, of another kind, or of a later lesson.

        The word of one principal replaces nothing that several measured, and what several measured replaces any such word: a
        principal that was alone for a minute could otherwise set a return that no policy reaches.
        """
        if self.principals > 1 and principals == 1:
            return False
        if self.principals == 1 and principals > 1:
            return True
        if (measure, revision) != (self.measure, self.revision):
            return True
        return self.entry.reward is None or reward > self.entry.reward

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as JSON."""
        return {
            **self.entry.to_json(),
            "measure": self.measure,
            "lesson_revision": self.revision,
            "principals": self.principals,
        }

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Returns the entry, or None if the value is not one."""
        entry = CheckpointEntry.from_json(value)
        if entry is None or not isinstance(value, Mapping):
            return None
        measure, revision, principals = value.get("measure"), value.get("lesson_revision"), value.get("principals")
        if not isinstance(measure, str) or type(revision) is not int or type(principals) is not int:
            return None
        return cls(entry, measure, revision, principals)


class TrainingStatus:
    """The status file of a run, in memory.

    Args:
        sections: Content of the file without its metadata.
    """

    def __init__(self, sections: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._sections: dict[str, dict[str, Any]] = {name: dict(values) for name, values in (sections or {}).items()}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the file; a missing one counts as empty, and so does a damaged one, with a warning."""
        try:
            document = json.loads(read_regular(path, _MAX_BYTES))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, RecursionError) as error:
            log.warning("training_status_not_read", file=str(path), reason=str(error), action=_STARTED_OVER)
            return cls()
        if not isinstance(document, dict):
            log.warning("training_status_not_read", file=str(path), reason="it is not a map", action=_STARTED_OVER)
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
        """Sets the final checkpoint of the run."""
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

    def set_elo(self, behavior: str, elo: float) -> None:
        """Sets the rating of a behavior with self-play."""
        self._section(behavior)["elo"] = elo

    def lessons(self, parameters: Iterable[str]) -> dict[str, int]:
        """Returns the number of the lesson of each environment parameter that has one."""
        found = {name: self._sections.get(name, {}).get("lesson_num") for name in parameters}
        return {name: number for name, number in found.items() if type(number) is int}

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all.

        Raises:
            WriteFailed: The file cannot be written.
        """
        # The metadata last, because a behavior could have that name.
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
