"""Trainers that learn by reinforcement: the books, the pace, versions, summaries and checkpoints around an update."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from torch import Tensor

from learner.device.buffer import UpdateBuffer
from learner.device.columns import on_policy_columns
from learner.device.sizes import ring_size
from learner.exits import ExitCode, UserError
from learner.ingest.behaviors import NOT_TRAINING
from learner.ingest.queue import HoldReason, Pace, QueuedChunk
from learner.trainers.base import RingNumbers, Trainer
from learner.trainers.clock import UpdateClock
from learner.trainers.context import Progress, TrainerContext
from learner.trainers.errors import TrainerFailedError
from learner.trainers.intake import Intake
from learner.trainers.pace import ahead_limit_steps
from learner.trainers.tally import EpisodeTally, extrinsic_strength

log = structlog.get_logger(__name__)

STATE_FORMAT = 1
NOT_FINITE = "not_finite_update"
MAX_FAILED_UPDATES = 3
"""Updates in a row that may be thrown away because their result was not finite."""


class RLTrainer(Trainer):
    """An on-policy trainer: collects until the update buffer is full, updates, publishes, and starts anew.

    Args:
        context: everything from outside.

    Raises:
        UserError: the ring of the run file is too small, or its network does not fit the behavior.
    """

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        behavior, service = context.behavior, context.service
        columns = on_policy_columns(behavior.spec)
        size = ring_size(
            columns,
            ring_steps=service.device_ring_steps,
            buffer_size=self.buffer_size,
            time_horizon=self.trainer_settings.time_horizon,
            chunk_steps=service.max_chunk_steps or -(-service.target_chunk_bytes // behavior.spec.step_bytes),
        )
        self.update_buffer = UpdateBuffer(
            columns, size.capacity_rows, size.block_rows, context.device, grows=size.grows
        )
        self.intake = Intake(behavior.name, self.update_buffer, context.ledger, context.generation)
        self.tally = EpisodeTally(
            context.stats,
            service.reward_buffer_episodes,
            extrinsic_strength(self.trainer_settings),
            metrics=context.metrics,
            lessons=context.lessons,
        )
        self.collected_rewards: dict[str, float] = {}
        self._version = 0
        self._optimizer_steps = 0
        self._steps_trained = 0
        self._steps_untrained = 0  # that counted: of updates that were not finite, or collected when training ended
        self._failed_updates = 0
        self._is_updated = False
        self._is_updating = False
        self._metrics = context.metrics
        self._clock = UpdateClock(context.stats, metrics=context.metrics)
        self._stage_seconds = 0.0  # since the last update
        self.policy = self.create_policy(behavior.spec)
        self.add_policy(behavior.name, self.policy)
        self.create_optimizer()

    @property
    def buffer_size(self) -> int:
        """Steps that an update must exceed."""
        return self.trainer_settings.hyperparameters.buffer_size

    @property
    def get_step(self) -> int:
        """Steps that were taken into an update buffer, whatever became of them there: it never falls."""
        return self._steps_trained + self._steps_untrained + self.update_buffer.taken_steps

    @property
    def steps_trained(self) -> int:
        """Steps in completed updates."""
        return self._steps_trained

    @property
    def version(self) -> int:
        """The policy version: completed updates."""
        return self._version

    @property
    def optimizer_steps(self) -> int:
        """Gradient steps in completed updates."""
        return self._optimizer_steps

    @property
    def reward_buffer(self) -> deque[float]:
        """Returns of the newest training episodes."""
        return self.tally.returns

    @property
    def episodes(self) -> int:
        """Training episodes so far."""
        return self.tally.episodes

    def mean_return(self) -> float | None:
        """Returns the mean of `reward_buffer`; None before the first episode."""
        return self.tally.mean()

    def mean_return_since_update(self) -> float | None:
        """Returns the mean over the episodes since the last update; that of `reward_buffer`, where none ended."""
        return self.tally.mean_since_update()

    @property
    def ring(self) -> RingNumbers:
        """Where its experience is."""
        buffer = self.update_buffer
        steps = buffer.waiting_steps + buffer.taken_steps
        return RingNumbers(self.intake.staged_steps, steps, buffer.ring.capacity_rows)

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
    def create_optimizer(self) -> None:
        """Makes the rest of the networks and their optimizer."""

    @abstractmethod
    def _update_policy(self) -> int:
        """Trains on the taken segments of `update_buffer`.

        Returns:
            How many gradient steps were taken; 0 if the result was not finite, and everything is as it was before.
        """

    @abstractmethod
    def _publish_statistics(self) -> None:
        """Puts running statistics of the observations into the networks that act."""

    @abstractmethod
    def model_state(self) -> dict[str, Any]:
        """Returns networks, optimizer, normalizer and generators."""

    @abstractmethod
    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what `model_state` returned.

        Raises:
            ValueError, KeyError, RuntimeError: it does not fit.
        """

    def start(self) -> None:
        """Publishes the present version and sets the pace."""
        for publisher in self.policy_queues:
            publisher.attach(self.policy)
        self._publish()
        self._set_pace()

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
        if self._is_ready_update():
            following = self._version + 1
            self.update_buffer.take_older(self._oldest_version(following) if self.threaded else following)

    def is_trainable(self) -> bool:
        """Returns whether there is enough new experience for an update."""
        return self._is_ready_update()

    def _is_ready_update(self) -> bool:
        return self.update_buffer.taken_steps > self.buffer_size

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
            self._failed_updates = 0
            self._version += 1
            self.tally.note_update()
            self._steps_trained += steps
            with self._metrics.publish.time():
                self._publish()
            self.context.ledger.trained(self.brain_name, steps)
            self._metrics.note_update()
            return
        self._steps_untrained += steps
        self.intake.drop(NOT_FINITE, steps)
        self._metrics.note_skipped("not_finite")
        self._failed_updates += 1
        log.warning("update_not_finite", behavior=self.brain_name, steps=steps, failed_in_a_row=self._failed_updates)
        if self._failed_updates >= MAX_FAILED_UPDATES:
            raise TrainerFailedError(
                f"{self._failed_updates} updates of {self.brain_name} in a row had losses or gradients that are not "
                "finite: lower learning_rate, set max_grad_norm, or look for rewards of very large size"
            )

    def teardown(self) -> None:
        """Takes waiting experience into the next buffer and releases the actors."""
        self._is_updating = False
        self._metrics.hold(active=False)
        self.intake.new_version(self.oldest_version)
        before = self.get_step
        self._refill()
        self._set_pace()
        self._cadence(before)

    def on_paused(self) -> None:
        """Stops the clock of the collection."""
        self._clock.pause()

    def on_resumed(self) -> None:
        """Lets the clock of the collection go on."""
        self._clock.resume()

    def end_episode(self) -> None:
        """Forgets collected experience, as after a reset of all environments."""
        self._clear("reset")

    def finish(self) -> None:
        """Ends training for good: what was collected and not trained leaves the books as dropped."""
        self._clear(NOT_TRAINING)

    def _clear(self, reason: str) -> None:
        """Drops everything that was collected; what counted as a step goes on counting (as in ML-Agents)."""
        self._steps_untrained += self.update_buffer.taken_steps
        self.intake.clear(reason)
        self._set_pace()

    def _publish(self) -> None:
        state: Mapping[str, Tensor] = self.policy.state_dict()
        progress = Progress(self._version, self._optimizer_steps, self._steps_trained)
        for publisher in self.policy_queues:
            publisher.publish(state, progress)
        self._metrics.note_published()

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
        pace = Pace(
            held_steps=self.intake.held_steps,
            ahead_limit_steps=ahead_limit_steps(self.trainer_settings),
            hold=HoldReason.UPDATING if until_version else None,
            until_version=until_version,
        )
        for queue in self.trajectory_queues:
            queue.set_pace(pace)

    def _cadence(self, before: int) -> None:
        """Writes a summary and a checkpoint where the steps since ``before`` crossed a multiple of their interval."""
        now = self.get_step
        summary_freq = self.trainer_settings.summary_freq
        if now // summary_freq > before // summary_freq:
            self.write_summary(now // summary_freq * summary_freq)
        interval = self.trainer_settings.checkpoint_interval
        if now // interval > before // interval and self.should_still_train:
            self.save_model()

    def write_summary(self, step: int) -> None:
        """Hands the collected statistics to the writers under a step."""
        self.stats_reporter.set_stat("Is Training", float(self.should_still_train))
        self.tally.report_lessons()
        self.stats_reporter.write_stats(step)

    def export_model(self, path: Path) -> None:
        """Writes the model that Unity loads."""
        from learner.publish.unity import export_unity  # noqa: PLC0415 - onnx takes half a second to import

        export_unity(self.policy, path)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that training depends on; steps in an unfinished buffer are not part of it."""
        return {
            "format": STATE_FORMAT,
            "trainer_type": self.trainer_settings.trainer_type,
            "version": self._version,
            "optimizer_steps": self._optimizer_steps,
            "steps_trained": self._steps_trained,
            "steps_failed": self._steps_untrained,
            "failed_updates": self._failed_updates,
            "tally": self.tally.state_dict(),
            "model": self.model_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state.

        Raises:
            UserError: it does not fit this trainer.
        """
        self.load_initial_state(state)
        self._version = int(state["version"])
        self._optimizer_steps = int(state["optimizer_steps"])
        self._steps_trained = int(state["steps_trained"])
        self._steps_untrained = int(state["steps_failed"])
        self._failed_updates = int(state["failed_updates"])
        self.tally.load(state["tally"])

    def load_initial_state(self, state: Mapping[str, Any]) -> None:
        """Starts with the networks, optimizer and statistics of another run's saved state; steps count from 0.

        Raises:
            UserError: it does not fit this trainer.
        """
        trainer_type = self.trainer_settings.trainer_type
        try:
            if (state["format"], state["trainer_type"]) != (STATE_FORMAT, trainer_type):
                raise ValueError(
                    f"it is of format {state['format']} for trainer {state['trainer_type']}, not of format "
                    f"{STATE_FORMAT} for trainer {trainer_type}"
                )
            self.load_model_state(state["model"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())  # torch's own messages have many lines
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the saved state of {self.brain_name} does not fit the run file: {reason}; restore the settings it was "
                "made with, or start a new run",
            ) from error
        self._publish_statistics()
