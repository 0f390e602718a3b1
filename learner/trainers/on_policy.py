"""Trainers that learn from fresh experience: collect until the update buffer is full, update, publish, start anew."""

from __future__ import annotations

import time
from abc import abstractmethod

from rollcast.enums import HoldReason
from rollcast.specs import BehaviorSpec

from learner.buffers.buffer import UpdateBuffer
from learner.buffers.columns import RingColumn, on_policy_columns
from learner.buffers.ring import RingSize, ring_size
from learner.ingest.behaviors import NOT_TRAINING, chunk_steps
from learner.link.experience import Pace, QueuedChunk
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings
from learner.trainers.base import RingNumbers, TrainerContext
from learner.trainers.intake import BufferIntake
from learner.trainers.rl import RLTrainer

NOT_FINITE = "not_finite_update"


def ring_of(
    spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings
) -> tuple[tuple[RingColumn, ...], RingSize]:
    """Returns the columns of a behavior's ring, and how large it is.

    Raises:
        UserError: the ring of the run file is too small.
    """
    memory = settings.network_settings.memory
    columns = on_policy_columns(
        spec,
        memory_size=0 if memory is None else memory.memory_size,
        memory_stride=0 if memory is None else memory.sequence_length,
    )
    size = ring_size(
        sum(column.row_bytes for column in columns),
        ring_steps=service.device_ring_steps,
        buffer_size=settings.hyperparameters.buffer_size,
        time_horizon=settings.time_horizon,
        chunk_steps=chunk_steps(spec, service),
    )
    return columns, size


class OnPolicyTrainer(RLTrainer):
    """Takes each step into one update and then forgets it.

    Args:
        context: everything from outside.

    Raises:
        UserError: the ring of the run file is too small, or its network does not fit the behavior.
    """

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        behavior = context.behavior
        columns, size = ring_of(behavior.spec, self.trainer_settings, context.service)
        self.update_buffer = UpdateBuffer(
            columns, size.capacity_rows, size.block_rows, context.device, grows=size.grows
        )
        self.intake = BufferIntake(behavior.name, self.update_buffer, context.ledger, context.generation)
        self._is_updated = False
        self._is_updating = False
        self._stage_seconds = 0.0  # since the last update

    @property
    def buffer_size(self) -> int:
        """Steps that an update must exceed."""
        return self.trainer_settings.hyperparameters.buffer_size

    @property
    def _collected_steps(self) -> int:
        return self.update_buffer.taken_steps

    @property
    def ring(self) -> RingNumbers:
        """Where its experience is."""
        buffer = self.update_buffer
        steps = buffer.waiting_steps + buffer.taken_steps
        return RingNumbers(self.intake.waiting_steps, steps, buffer.ring.capacity_rows)

    @property
    def oldest_version(self) -> int:
        """The oldest version whose steps may be trained now; 0 if any may."""
        return self._oldest_version(self._version)

    def _oldest_version(self, version: int) -> int:
        """Returns the oldest version whose steps may be trained under ``version``.

        Without threads actors wait while an update runs. What they sent before is on its way meanwhile and arrives one
        version later, which is no fault of theirs: it may be one version older than `max_policy_lag`.
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
            How many gradient steps were taken; 0 if the result was not finite, and everything is as it was before.
        """

    def collect(self) -> bool:
        """Takes what waits in the queues, stages it, and tells the service what is held."""
        before = self.get_step
        is_busy = super().collect()
        if is_busy:
            self._refill()
            self._set_pace()
            self._cadence(before)
            self.tally.note_progress(self.get_step / self.get_max_steps)
        return is_busy

    def _process_trajectory(self, item: QueuedChunk) -> None:
        self._metrics.queue_wait.observe(max(0.0, time.monotonic() - item.received_at))
        self.tally.add(item.chunk)
        if self.is_training:
            self.intake.receive(item)
        else:
            self.intake.drop(NOT_TRAINING, item.chunk.rows)

    def _refill(self) -> None:
        """Stages what was received and takes what the next update needs.

        A full buffer takes more, rather than let it become too old: all that waits if actors wait too (as ML-Agents
        does, whose buffer exceeds buffer_size by whatever came), else what the next version could not train any more.
        """
        began = time.monotonic()
        self.intake.stage(self.oldest_version)
        self._stage_seconds += time.monotonic() - began
        if not self.should_still_train:
            return
        self.update_buffer.take(self.buffer_size)
        if self.is_trainable():
            following = self._version + 1
            self.update_buffer.take_older(self._oldest_version(following) if self.threaded else following)

    def is_trainable(self) -> bool:
        """Returns whether the buffer is full; in lock-step, each round is an update, whatever it holds."""
        needed_steps = self.buffer_size if self.context.service.lockstep is None else 0
        return self.update_buffer.taken_steps > needed_steps

    def setup(self) -> None:
        """Holds the actors, unless they may go on while the update runs."""
        self._is_updating = True
        self._set_pace()
        self._metrics.hold(active=not self.threaded)
        self._metrics.stage.observe(self._stage_seconds)
        self._stage_seconds = 0.0
        self._clock.begin_update()

    def train(self) -> None:
        """Runs the update of the algorithm."""
        steps = self._update_policy()
        self._is_updated = steps > 0
        self._optimizer_steps += steps
        self._clock.end_update(self.update_buffer.taken_steps)

    def sync_models(self) -> None:
        """Completes the update: a new version in the books and with the actors; or none, if it was not finite."""
        steps = self.update_buffer.settle()
        if self._is_updated:
            self._complete_update(steps)
            return
        self.intake.drop(NOT_FINITE, steps)
        self._give_update_up(steps)

    def teardown(self) -> None:
        """Takes waiting experience into the next buffer and releases the actors."""
        self._is_updating = False
        self._metrics.hold(active=False)
        self.intake.new_version(self.oldest_version)
        before = self.get_step
        self._refill()
        self._set_pace()
        self._cadence(before)

    def finish(self) -> None:
        """Ends training for good: what was collected and not trained leaves the books as dropped.

        What counted as a step still counts, as in ML-Agents. The ring's memory is for the behaviors that train on.
        """
        self._steps_untrained += self.update_buffer.taken_steps
        self.intake.clear(NOT_TRAINING)
        self.update_buffer.release()
        self._set_pace()

    def _set_pace(self) -> None:
        """Tells the service what is held, and which version actors shall wait for.

        A hold names the version that ends it: an actor goes on when that version acts there. If trainer and actors take
        turns (``threaded: false``) that is the version of the next update while it runs. The hold stays afterwards:
        releasing it here would race against the policy, which comes over another stream, and a slow actor would go on
        with the old one. Threaded, only an actor waits whose policy is so old that its steps would soon be of no use.
        """
        following = self._version + 1
        until_version = (
            min(self._version, self._oldest_version(following)) if self.threaded else self._version + self._is_updating
        )
        self.queue.set_pace(
            Pace(
                held_steps=self.intake.held_steps,
                ahead_limit_steps=ahead_limit_steps(self.trainer_settings),
                hold=HoldReason.UPDATING if until_version else None,
                until_version=until_version,
            )
        )


def ahead_limit_steps(settings: TrainerSettings) -> int:
    """Returns how many steps may be unsettled (queued, staged, or in the update buffer) before actors get no credit.

    Beside it each session has an open allowance of agents * time_horizon, so that open segments can always be closed. An
    update needs more than ``buffer_size`` steps; a limit above that can never be reached without an update's being ready,
    so neither side waits for the other.

    Threaded, actors fill the next buffer while the present one is trained. Not threaded, a hold stops them at each
    update; the quarter of a buffer beyond it keeps them from running out of credit while the last chunks of the present
    buffer are on their way.
    """
    buffer_size = settings.hyperparameters.buffer_size
    if settings.threaded:
        return 2 * buffer_size + 1
    return buffer_size + max(buffer_size // 4, settings.time_horizon) + 1
