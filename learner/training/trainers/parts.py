"""The parts of a run: work between the turns of trainers, and what is kept at the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rollcast.text import in_one_line

from learner.link.to_trainers import Experience
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.summary import BehaviorSummary
from learner.shared.settings.service import ServiceSettings
from learner.training.trainers.base import Trainer

Trainers: TypeAlias = Mapping[str, Trainer]
"""Trainers by behavior name."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of a run.

    Attributes:
        reason: Reason of the stop; ``error`` if the run ended with an error of another kind.
        error: Error that ended the run; None for a good end.
        has_begun: Whether trainers have taken turns.
        has_settled: Whether the last update is over, so that weights and accounting match.
        is_complete: Whether the parts so far have kept everything they must keep.
        summaries: Result of each behavior, without its model.
    """

    reason: str
    error: BaseException | None = None
    has_begun: bool = True
    has_settled: bool = True
    is_complete: bool = True
    summaries: Mapping[str, BehaviorSummary] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Returns whether the trained state can be kept."""
        return self.error is None and self.has_begun and self.has_settled

    @property
    def is_superseded(self) -> bool:
        """Returns whether another learner has taken the run folder over, so that nothing may be written."""
        return isinstance(self.error, UserError) and self.error.exit_code is ExitCode.SUPERSEDED

    @property
    def error_text(self) -> str:
        """The error as one line for journals; empty for a good end."""
        if self.error is None:
            return ""
        return in_one_line(self.error) if self.has_begun else str(self.error)


class RunPart:
    """A part of a run. While trainers take turns, all methods are called from their thread.

    `finish` is called from the thread that ends the run. Trainers have stopped, unless `Ending.has_settled` is False:
    their thread may still be in an update.

    Subclass it and override what the part needs; the rest does nothing.

    Attributes:
        name: Name of its state in the run state; empty for a part without state.
    """

    name: str = ""

    def trainer_added(self, trainer: Trainer) -> None:
        """Called with each new trainer before it publishes its first version; again if no file could be opened.

        Raises:
            UserError: The part has something for the trainer, such as a saved state, that does not fit.
        """

    def received(self, behavior: str, item: Experience) -> None:
        """Called with each chunk as it arrives, also for a behavior that is no longer trained.

        Args:
            behavior: Name of its behavior.
            item: The chunk, which the part must not change.
        """

    def before_turn(self, trainers: Trainers) -> None:
        """Called before the trainers take their turns; not during a pause."""

    def after_turn(self, trainers: Trainers) -> None:
        """Called after the trainers took their turns, and occasionally during a pause."""

    def service_changed(self, service: ServiceSettings) -> None:
        """Called between two turns when `Live` settings of the service have changed."""

    def training_ended(self, trainers: Trainers, ended: Collection[str]) -> None:
        """Called when behaviors end training: for each as it finishes, and for all after the last turn.

        Actors may still be playing, and the run may still be aborted: save here what must not be lost.

        Args:
            trainers: All trainers.
            ended: Names of the behaviors whose training ended.
        """

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Called once at the end of the run, in the order of the parts.

        Returns:
            Whether everything that must be kept was kept.
        """
        del trainers, ending
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a restart needs, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`; an empty state comes from a run without this part.

        Raises:
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError: The state is not one that was saved
                here.
        """
