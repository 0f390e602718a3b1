"""Reads a finished run for evaluation: its behaviors, their specs, and the states of their policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.choice import load_chosen, read_behavior
from learner.shared.runfolder.documents import BadCheckpoint
from learner.shared.runfolder.names import LAST, NEWEST, RUN_STATE, safe_name
from learner.shared.runfolder.status import TrainingStatus
from learner.shared.runfolder.store import last_states, read_run_state
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.options import RunOptions
from learner.shared.settings.trainer import SelfPlaySettings
from learner.training.curriculum.lessons import Lessons
from learner.training.trainers.base import Trainer


class SavedPolicies:
    """Finds and reads the states to evaluate before any actor plays.

    Args:
        folder: Run folder.
        checkpoint: ``last``, ``best``, a step, or a file.
        behavior: The only behavior to evaluate; None evaluates all.

    Attributes:
        behaviors_table: Specs of the run's behaviors; None if the run state is missing or unreadable.
        names: Names of the behaviors; empty if unknown.
        named_steps: Steps in the names of the chosen checkpoints, which include steps collected but not trained.

    Raises:
        UserError: The behavior or checkpoint does not exist or cannot be read.
    """

    def __init__(self, folder: Path, checkpoint: str, behavior: str | None) -> None:
        self._folder = folder
        self._checkpoint = checkpoint
        self.named_steps: dict[str, int] = {}
        self._status = TrainingStatus.load(folder / "run_logs" / "training_status.json")
        state = read_run_state(folder)
        self.behaviors_table: Mapping[str, Any] | None = None if state is None else state.behaviors_table
        self._newest: Mapping[str, Any] = {} if state is None else last_states(folder, state)
        self.names = self._names()
        if behavior is not None and self.names and behavior not in self.names:
            raise UserError(
                ExitCode.USAGE,
                f"--behavior {behavior!r}: the run in {folder} has no such behavior, only {', '.join(self.names)}; "
                "name one of these, or omit --behavior",
            )
        self._states = {name: self._found(name) for name in self.names}

    def restore_lessons(self, lessons: Lessons) -> None:
        """Sets the lessons that the run is in, so that it is evaluated under the parameters of its last episodes."""
        lessons.set_numbers(self._status.lessons(lessons.numbers()))

    def load(self, trainer: Trainer) -> None:
        """Loads a trainer's state.

        Raises:
            UserError: The state is missing or does not fit.
        """
        name = trainer.brain_name
        state = self._states.get(name)
        trainer.load_state_dict(self._found(name) if state is None else state)

    def _names(self) -> tuple[str, ...]:
        """Returns the names in the run state, or otherwise those of the newest checkpoints."""
        if self.behaviors_table is not None:
            try:
                return tuple(str(row["name"]) for row in self.behaviors_table["behaviors"])
            except (KeyError, TypeError) as error:
                raise UserError(
                    ExitCode.BAD_CHECKPOINT,
                    f"{self._folder / RUN_STATE} lists no behaviors; restore another copy of it, or remove it to "
                    "evaluate the checkpoints in the folders of the behaviors",
                ) from error
        names = []
        for path in sorted(self._folder.glob(f"*/{NEWEST}")):
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
                f"the run in {self._folder} has no readable run state and no readable checkpoint; name a .pt file with "
                "--checkpoint",
            )
        return tuple(names)

    def _found(self, name: str) -> Mapping[str, Any]:
        choice = self._checkpoint
        if choice == LAST:
            newest = self._newest.get(name)
            if isinstance(newest, Mapping):
                return newest
            choice = str(self._folder / safe_name(name) / NEWEST)  # the run state is missing or lacks the behavior
        found = load_chosen(self._folder, name, choice, self._status)
        self.named_steps[name] = found.step
        return found.state


def without_training_limits(loaded: LoadedRun) -> RunOptions:
    """Returns a run's settings without those that only training needs: lock-step and the run file's time limit.

    A limit given to this command by a flag or the environment remains.
    """
    service = loaded.options.rollcast
    is_of_run_file = loaded.sources.get("rollcast.max_wall_seconds") == "yaml"
    limit = None if is_of_run_file else service.max_wall_seconds
    changes = {"lockstep": None, "max_wall_seconds": limit}
    return loaded.options.model_copy(update={"rollcast": service.model_copy(update=changes)})


def with_only(options: RunOptions, names: Collection[str], *, self_play: bool) -> RunOptions:
    """Returns a run file with only the behaviors of a run, so that actors of other runs are refused.

    Args:
        options: The run file.
        names: Names of the behaviors; empty if unknown.
        self_play: Whether each gets self-play, so that its behavior ids act only in matches, between two players.

    Raises:
        UserError: The run file no longer has one of the behaviors.
    """
    behaviors = {name: options.settings_for(name) for name in names} or options.behaviors
    if self_play:
        behaviors = {
            name: each if each.self_play is not None else each.model_copy(update={"self_play": SelfPlaySettings()})
            for name, each in behaviors.items()
        }
    return options.model_copy(
        update={"behaviors": behaviors, "default_settings": None if names else options.default_settings}
    )
