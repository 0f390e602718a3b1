"""Finds the checkpoint of a run for a choice: ``best``, a step, or a file. ``last`` is the newest state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.documents import BadCheckpoint, read_document
from learner.shared.runfolder.names import safe_name
from learner.shared.runfolder.status import TrainingStatus
from learner.shared.saved_values import MAX_COUNT, count, reason

BEST: Final = "best"
BEST_FILE: Final = "best.pt"
BEST_MODEL: Final = "best.onnx"
BEHAVIOR_KIND: Final = "behavior"
_MAX_DIGITS: Final = len(str(MAX_COUNT))


@dataclass(frozen=True, slots=True)
class BehaviorCheckpoint:
    """One behavior at one step.

    Attributes:
        behavior: Name of the behavior.
        step: Steps of the trainer.
        state: Result of the trainer's ``state_dict``.
    """

    behavior: str
    step: int
    state: dict[str, Any]


def read_behavior(path: Path) -> BehaviorCheckpoint:
    """Reads a checkpoint of one behavior.

    Raises:
        BadCheckpoint: The checkpoint is missing or damaged, or the file is of another kind.
    """
    document = read_document(path, BEHAVIOR_KIND)
    state = document.get("state")
    if not isinstance(state, dict):
        raise BadCheckpoint(path, "holds no trainer state")
    try:
        step = count(document, "step")
    except (KeyError, ValueError) as error:
        raise BadCheckpoint(path, f"is incomplete ({reason(error)})") from error
    return BehaviorCheckpoint(str(document.get("behavior")), step, state)


def read_initial(behavior: str, path: Path) -> BehaviorCheckpoint:
    """Reads the checkpoint from which a behavior of a new run starts.

    Raises:
        UserError: ``BAD_CHECKPOINT``: the file is missing or cannot be read.
    """
    try:
        return read_behavior(path)
    except BadCheckpoint as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"behavior {behavior!r} cannot start from a checkpoint: {error}; name another run (--initialize-from) or file "
            "(init_path), or remove the setting",
        ) from error


def chosen_path(folder: Path, behavior: str, choice: str, status: TrainingStatus) -> Path:
    """Returns the path of the file for a choice; the file may not exist.

    Args:
        folder: Folder of the run.
        behavior: Name of the behavior.
        choice: ``best``, a step, or a path.
        status: Training status of the run.

    Raises:
        UserError: ``BAD_CHECKPOINT``: the run has no best checkpoint yet, or the step is too large.
    """
    name = safe_name(behavior)
    if choice == BEST:
        if status.best(behavior) is None:
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the run in {folder} has no best checkpoint of {behavior!r} yet: the first is saved after an "
                "evaluation, or after rollcast.reward_buffer_episodes episodes; use last",
            )
        return folder / name / BEST_FILE
    if choice.isdecimal() and len(choice.lstrip("0")) > _MAX_DIGITS:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"behavior {behavior!r}: checkpoint {choice[:_MAX_DIGITS]}... has {len(choice)} digits, but the largest step is "
            f"{MAX_COUNT}; name best, last or a kept step",
        )
    if choice.isdecimal():
        return folder / name / f"{name}-{int(choice)}.pt"
    return Path(choice)


def load_chosen(folder: Path, behavior: str, choice: str, status: TrainingStatus) -> BehaviorCheckpoint:
    """Reads the checkpoint for a choice.

    Raises:
        UserError: ``BAD_CHECKPOINT``: the checkpoint is missing or cannot be read.
    """
    path = chosen_path(folder, behavior, choice, status)
    try:
        return read_behavior(path)
    except BadCheckpoint as error:
        kept = ", ".join(str(entry.steps) for entry in status.checkpoints(behavior)) or "none"
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"behavior {behavior!r}: {error}; name best, last or a kept step (kept: {kept})",
        ) from error
