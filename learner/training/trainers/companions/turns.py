"""Gives the companions of all behaviors their turns, between those of the trainers."""

from __future__ import annotations

from collections.abc import Collection

from learner.training.lockstep.barrier import Lockstep
from learner.training.trainers.parts import RunPart, Trainers


class CompanionTurns(RunPart):
    """Lets companions train after the turns of the trainers.

    Args:
        lockstep: Plays the rounds of a lock-step run; None for other runs.
    """

    def __init__(self, lockstep: Lockstep | None = None) -> None:
        self._lockstep = lockstep
        self._is_turn = False

    def before_turn(self, trainers: Trainers) -> None:
        """Empties the data buffers where a restart would continue: data are not saved."""
        self._is_turn = True
        if self._lockstep is not None and self._lockstep.is_boundary:
            for trainer in trainers.values():
                trainer.context.companions.clear_data()

    def after_turn(self, trainers: Trainers) -> None:
        """Lets companions train; not during a pause."""
        if not self._is_turn:
            return
        self._is_turn = False
        for _, trainer in sorted(trainers.items()):
            if trainer.should_still_train:
                trainer.context.companions.take_turns()

    def training_ended(self, trainers: Trainers, ended: Collection[str]) -> None:
        """Ends the companions of behaviors whose training ended."""
        for name in ended:
            trainers[name].context.companions.end()
