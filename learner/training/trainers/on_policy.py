"""Trainers that learn from fresh experience: collect until the update buffer is full, update, publish, repeat."""

from __future__ import annotations

import time
from abc import abstractmethod

from rollcast.enums import HoldReason
from rollcast.specs import BehaviorSpec

from learner.link.to_front import NOT_TRAINING, Pace
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.buffer import UpdateBuffer
from learner.training.buffers.columns import RingColumn, on_policy_columns
from learner.training.buffers.ring import RingSize, ring_size
from learner.training.trainers.base import RingNumbers, TrainerContext, ahead_limit_steps
from learner.training.trainers.intake import BufferIntake
from learner.training.trainers.rl import RLTrainer

NOT_FINITE = "not_finite_update"


def ring_of(
    spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings
) -> tuple[tuple[RingColumn, ...], RingSize]:
    """Returns the columns and the size of a behavior's ring.

    Raises:
        UserError: The ring of the run file is too small.
    """
    memory = settings.network_settings.memory
    columns = on_policy_columns(
        spec,
        memory_size=0 if memory is None else memory.memory_size,
        memory_stride=0 if memory is None else memory.sequence_length,
        of_team=settings.traits.grouped,
    )
    size = ring_size(
        sum(column.row_bytes for column in columns),
        ring_steps=service.device_ring_steps,
        buffer_size=settings.hyperparameters.buffer_size,
        time_horizon=settings.time_horizon,
        chunk_steps=service.full_chunk_steps(spec.step_bytes),
    )
    return columns, size


class OnPolicyTrainer(RLTrainer):
    """Trains each step in one update and then discards it.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The ring of the run file is too small, or the network does not fit the behavior.
    """

    intake: BufferIntake

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        behavior = context.behavior
        columns, size = ring_of(behavior.spec, self.trainer_settings, context.service)
        self.update_buffer = UpdateBuffer(
            columns,
            size.capacity_rows,
            size.block_rows,
            context.device,
            grows=size.grows,
            grouped=self.trainer_settings.traits.grouped,
            rank=context.reduce.rank,
            ranks=context.reduce.ranks,
        )
        self.intake = BufferIntake(self.update_buffer, context.outcomes, context.generation)
        self._is_updated = False
        self._is_updating = False

    @property
    def buffer_size(self) -> int:
        """Number of steps that an update needs."""
        return self.trainer_settings.hyperparameters.buffer_size

    @property
    def _collected_steps(self) -> int:
        return self.update_buffer.taken_steps

    @property
    def ring(self) -> RingNumbers:
        """Counts of the trainer's experience."""
        buffer = self.update_buffer
        steps = buffer.waiting_steps + buffer.taken_steps
        return RingNumbers(self.intake.waiting_steps, steps, buffer.ring.capacity_rows)

    @property
    def oldest_version(self) -> int:
        """The oldest version whose steps may be trained now; 0 for any."""
        return self._oldest_version(self._version)

    def _oldest_version(self, version: int) -> int:
        """Returns the oldest version whose steps may be trained under ``version``.

        Without threads, actors wait while an update runs. Steps sent before the update arrive one version later, so
        these steps may be one version older than `max_policy_lag` allows.
        """
        behavior = self.context.behavior
        if behavior.cut_at_swap:  # rollcast.on_policy: strict
            return version
        if not behavior.max_policy_lag:
            return 0
        return max(0, version - behavior.max_policy_lag - (not self.threaded))

    @abstractmethod
    def _update_policy(self) -> int:
        """Trains on the taken segments of `update_buffer`.

        Returns:
            Number of gradient steps taken; 0 if the result was not finite and the former state was restored.
        """

    def collect(self) -> bool:
        """Takes everything that waits in the queue and stages it."""
        before = self.get_step
        is_busy = super().collect()
        if is_busy:
            self._refill()
            self._cadence(before)
            self.episode_statistics.note_progress(self.get_step / self.get_max_steps)
        return is_busy

    def _refill(self) -> None:
        """Stages received steps and takes those that the next update needs.

        A full buffer also takes steps that would otherwise become too old: without threads, all waiting steps (none, if
        all actors follow quotas); with threads, only steps that the next version could not train.
        """
        began = time.monotonic()
        self.intake.stage(self.oldest_version)
        self._stage_seconds += time.monotonic() - began
        if not self.is_training:
            return
        self.update_buffer.take(self.buffer_size)
        if self.is_trainable():
            following = self._version + 1
            self.update_buffer.take_older(self._oldest_version(following) if self.threaded else following)

    @property
    def should_still_train(self) -> bool:
        """Returns whether more updates follow; a buffer that is full at the last step is still trained."""
        return self.is_training and (self.get_step < self.get_max_steps or self.is_trainable())

    def is_trainable(self) -> bool:
        """Returns whether the buffer is full; in lock-step each round is an update, whatever its size."""
        needed_steps = self.buffer_size if self.context.service.lockstep is None else 1
        return self.update_buffer.taken_steps >= needed_steps

    def setup(self) -> None:
        """Holds the actors, unless they may continue while the update runs."""
        self._is_updating = True
        super().setup()

    def train(self) -> None:
        """Runs the update of the algorithm."""
        if (history := self.context.outcomes.history) is not None:
            history.update_begins(self._version, self.update_buffer.taken_sources())
        steps = self._update_policy()
        self._is_updated = steps > 0
        self._optimizer_steps += steps
        self._is_updating = False
        self._clock.end_update(self.update_buffer.taken_steps)

    def sync_models(self) -> None:
        """Completes the update: publishes a new version, or none if the update was not finite."""
        if (history := self.context.outcomes.history) is not None:
            sources = self.update_buffer.taken_sources()
            if self._is_updated:
                history.update_ends(self._version + 1, sources)
            else:
                history.dropped(NOT_FINITE, sources)
        steps = self.update_buffer.settle()
        if self._is_updated:
            self.numbers["update_steps"] = steps
            self.complete_update(steps)
            return
        self.intake.drop(NOT_FINITE, steps)
        self._give_update_up(steps)

    def teardown(self) -> None:
        """Moves waiting experience into the next buffer and releases the actors."""
        self.intake.new_version(self.oldest_version)
        before = self.get_step
        self._refill()
        self._cadence(before)

    def finish(self) -> None:
        """Ends training; collected steps that were not trained are recorded as dropped.

        Counted steps stay counted, as in ML-Agents. The ring's memory becomes available to the remaining behaviors.
        """
        self._steps_untrained += self.update_buffer.taken_steps
        self.intake.clear(NOT_TRAINING)
        self.update_buffer.release()

    def pace(self) -> Pace:
        """Returns how far ahead actors may run, and the version they wait for.

        A hold names the version that ends it: an actor continues once it acts with that version. If trainer and actors
        take turns (``threaded: false``), this is the version of the next update while that update runs. The hold stays
        afterwards: releasing it here would race against the policy, which arrives over another stream, and a slow actor
        would continue with the old one. With threads, an actor waits only if its policy is so old that its steps would
        soon be useless.
        """
        following = self._version + 1
        until_version = (
            min(self._version, self._oldest_version(following)) if self.threaded else self._version + self._is_updating
        )
        return Pace(
            ahead_limit_steps=ahead_limit_steps(self.trainer_settings),
            hold=HoldReason.UPDATING if until_version else None,
            until_version=until_version,
            update_steps=0 if self.threaded or not self.should_still_train else self.buffer_size,
        )
