"""Which checkpoint of a run is meant by a word: ``best``, a step, or a file. ``last`` is the run state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from learner.checkpoints.documents import BadCheckpoint, read_document
from learner.checkpoints.names import safe_name
from learner.checkpoints.status import TrainingStatus
from learner.common.exits import ExitCode, UserError
from learner.common.saved_values import MAX_COUNT, count, reason

BEST: Final = "best"
BEST_FILE: Final = "best.pt"
BEST_MODEL: Final = "best.onnx"
BEHAVIOR_KIND: Final = "behavior"
_MAX_DIGITS: Final = len(str(MAX_COUNT))


@dataclass(frozen=True, slots=True)
class BehaviorCheckpoint:
    """One behavior at one step.

    Attributes:
        behavior: its name.
        step: trainer steps.
        state: what the trainer's ``state_dict`` returned.
    """

    behavior: str
    step: int
    state: dict[str, Any]


def read_behavior(path: Path) -> BehaviorCheckpoint:
    """Reads a checkpoint of one behavior.

    Raises:
        BadCheckpoint: it is missing, damaged, or something else.
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


def chosen_path(folder: Path, behavior: str, choice: str, status: TrainingStatus) -> Path:
    """Returns the file that a word means; whether it is there is found when it is read.

    Args:
        folder: of the run.
        behavior: its name.
        choice: ``best``, a step, or a path.
        status: of the run.

    Raises:
        UserError: ``BAD_CHECKPOINT``: the run has no best one yet, or no step is so large.
    """
    name = safe_name(behavior)
    if choice == BEST:
        if status.best(behavior) is None:
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the run in {folder} has no best checkpoint of {behavior!r} yet: it is kept once "
                "rollcast.reward_buffer_episodes have ended or an evaluation was made; take last",
            )
        return folder / name / BEST_FILE
    if choice.isdecimal() and len(choice.lstrip("0")) > _MAX_DIGITS:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"checkpoint {choice[:_MAX_DIGITS]}... is a number of {len(choice)} digits, and steps go to {MAX_COUNT}: take "
            f"a step that is kept, best or last ({behavior!r})",
        )
    if choice.isdecimal():
        return folder / name / f"{name}-{int(choice)}.pt"
    return Path(choice)


def load_chosen(folder: Path, behavior: str, choice: str, status: TrainingStatus) -> BehaviorCheckpoint:
    """Reads the checkpoint that a word means.

    Raises:
        UserError: ``BAD_CHECKPOINT``: it is missing or cannot be read.
    """
    path = chosen_path(folder, behavior, choice, status)
    try:
        return read_behavior(path)
    except BadCheckpoint as error:
        kept = ", ".join(str(entry.steps) for entry in status.checkpoints(behavior)) or "none"
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"behavior {behavior!r}: {error}; steps that are kept: {kept}; besides there are best and last",
        ) from error
