"""What a finished run has to be evaluated with: which behaviors, what they see and do, and the states that act."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learner.checkpoints.choice import load_chosen, read_behavior
from learner.checkpoints.documents import BadCheckpoint
from learner.checkpoints.names import LAST, RUN_STATE, safe_name
from learner.checkpoints.status import TrainingStatus
from learner.checkpoints.store import read_run_state
from learner.common.exits import ExitCode, UserError
from learner.trainers.base import Trainer


class SavedPolicies:
    """The states of a run that are to act, found and read before anybody is asked to play.

    Args:
        folder: of the run.
        checkpoint: ``last``, ``best``, a step, or a file.
        behavior: the only one to be measured; None measures all.

    Attributes:
        behaviors_table: what the run's behaviors see and do; None where the run state is gone or cannot be read.
        names: of the behaviors; empty where nothing tells.
        named_steps: what the chosen checkpoints are called by, steps that were collected and not trained included.

    Raises:
        UserError: there is no such behavior or checkpoint, or it cannot be read.
    """

    def __init__(self, folder: Path, checkpoint: str, behavior: str | None) -> None:
        self._folder = folder
        self._checkpoint = checkpoint
        self.named_steps: dict[str, int] = {}
        self._status = TrainingStatus.load(folder / "run_logs" / "training_status.json")
        state = read_run_state(folder)
        self.behaviors_table: Mapping[str, Any] | None = None if state is None else state.behaviors_table
        self._newest: Mapping[str, Any] = {} if state is None else state.trainers
        self.names = self._names()
        if behavior is not None and self.names and behavior not in self.names:
            raise UserError(
                ExitCode.USAGE,
                f"--behavior {behavior!r}: the run in {folder} has no such behavior, only {', '.join(self.names)}; "
                "name one of these, or leave it out",
            )
        self._states = {name: self._found(name) for name in self.names}

    def load(self, trainer: Trainer) -> None:
        """Gives a trainer its state.

        Raises:
            UserError: there is none, or it does not fit.
        """
        name = trainer.brain_name
        state = self._states.get(name)
        trainer.load_state_dict(self._found(name) if state is None else state)

    def _names(self) -> tuple[str, ...]:
        """Returns what the run state tells, or else the newest checkpoints."""
        if self.behaviors_table is not None:
            try:
                return tuple(str(row["name"]) for row in self.behaviors_table["behaviors"])
            except (KeyError, TypeError) as error:
                raise UserError(
                    ExitCode.BAD_CHECKPOINT,
                    f"{self._folder / RUN_STATE} lists no behaviors; put back another copy of it, or remove it to "
                    "evaluate checkpoints of single behaviors",
                ) from error
        names = []
        for path in sorted(self._folder.glob("*/checkpoint.pt")):
            try:
                names.append(read_behavior(path).behavior)
            except BadCheckpoint as error:
                if self._checkpoint == LAST:
                    raise UserError(
                        ExitCode.BAD_CHECKPOINT, f"{error}, and no run state can be read; try --checkpoint best"
                    ) from error
        if not names and self._checkpoint == LAST:
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the run in {self._folder} has neither a run state nor a checkpoint that can be read; name a .pt file "
                "with --checkpoint",
            )
        return tuple(names)

    def _found(self, name: str) -> Mapping[str, Any]:
        choice = self._checkpoint
        if choice == LAST:
            newest = self._newest.get(name)
            if isinstance(newest, Mapping):
                return newest
            choice = str(self._folder / safe_name(name) / "checkpoint.pt")  # the run state is gone, or lacks it
        found = load_chosen(self._folder, name, choice, self._status)
        self.named_steps[name] = found.step
        return found.state
