"""Reinforcement-learning trainers: what arrives, phases and faulty updates around those of every trainer.

`learner.training.trainers.on_policy` and `learner.training.trainers.replay` collect experience.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from learner.link.to_trainers import Experience
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.meters import BehaviorMeters
from learner.shared.observe.stats import StatsReporter
from learner.training.networks.observations import is_entities
from learner.training.trainers.base import Trainer, TrainerContext
from learner.training.trainers.intake import ChunkFilter

log = structlog.get_logger(__name__)


class TrainerFailedError(UserError):
    """A trainer cannot continue; the learner ends with exit code TRAINER_FAILED.

    Args:
        message: One line that states the value, the limit and the next step.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.TRAINER_FAILED, message)


class UpdateClock:
    """Measures and reports the phases of a trainer; a pause belongs to neither phase.

    Args:
        stats: Receives seconds and steps per second.
        metrics: Also receives the seconds of collections.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        stats: StatsReporter,
        metrics: BehaviorMeters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stats = stats
        self._metrics = metrics
        self._clock = clock
        self._phase_began = self._paused_at = clock()
        self._collect_seconds = 0.0

    def begin_update(self) -> None:
        """Ends a collection and begins an update."""
        self._collect_seconds = self._next_phase()
        self._metrics.batch_wait.observe(self._collect_seconds)

    def end_update(self, steps: int) -> None:
        """Ends an update of ``steps`` environment steps, reports both phases, and begins the next collection."""
        seconds = self._next_phase()
        self._stats.add_stat("Rollcast/Collect Seconds", self._collect_seconds)
        self._stats.add_stat("Rollcast/Update Seconds", seconds)
        self._stats.add_stat("Rollcast/Steps per Second", steps / max(self._collect_seconds + seconds, 1e-9))

    def pause(self) -> None:
        """Stops the clock."""
        self._paused_at = self._clock()

    def resume(self) -> None:
        """Continues the clock."""
        self._phase_began += self._clock() - self._paused_at

    def _next_phase(self) -> float:
        now = self._clock()
        seconds, self._phase_began = now - self._phase_began, now
        return seconds


MAX_FAILED_UPDATES = 3
"""Most consecutive updates that may be discarded because their result was not finite."""


class RLTrainer(Trainer):
    """The base of reinforcement-learning trainers; subclasses define collection and update.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.

    Attributes:
        intake: Holds the segments that arrive.
    """

    intake: ChunkFilter

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        self.collected_rewards: dict[str, float] = {}
        self._is_told_of_groups = False
        self._clock = UpdateClock(context.stats, context.metrics)
        self._stage_seconds = 0.0  # since the last update
        self.create_optimizer()
        self._note_entities()

    @property
    def _collected_steps(self) -> int:
        return 0

    @abstractmethod
    def create_optimizer(self) -> None:
        """Creates the remaining networks and the optimizer."""

    @abstractmethod
    def _publish_statistics(self) -> None:
        """Copies running statistics of the observations into the acting networks."""

    def _give_update_up(self, steps: int) -> None:
        """Counts an update that was not finite and was rolled back.

        Args:
            steps: Steps of experience that are discarded.

        Raises:
            TrainerFailedError: Too many updates in a row failed.
        """
        self._steps_untrained += steps
        self._metrics.note_skipped("not_finite")
        self._failed_updates += 1
        faulty = ", ".join(self._take_faulty_signals())
        told = {"reward_signals": faulty} if faulty else {}
        log.warning(
            "update_not_finite", behavior=self.brain_name, steps=steps, failed_in_a_row=self._failed_updates, **told
        )
        if self._failed_updates >= MAX_FAILED_UPDATES:
            advice = "lower learning_rate, set max_grad_norm, or check for very large rewards"
            if faulty:
                advice = (
                    f"as were rewards of the reward signal {faulty}: lower its learning_rate or strength, or correct "
                    "the package that contains it"
                )
            raise TrainerFailedError(
                f"{self._failed_updates} updates of {self.brain_name} in a row had losses, gradients or actions that "
                f"are not finite{', ' if faulty else ': '}{advice}"
            )

    def _take_faulty_signals(self) -> tuple[str, ...]:
        """Returns the reward signals whose rewards were not finite since the last call."""
        return ()

    def _note_entities(self) -> None:
        """Warns that lists of entities enter the networks unnormalized, although the run file sets ``normalize``."""
        lists = [each.name for each in self.context.behavior.spec.observations if is_entities(each)]
        if lists and self.trainer_settings.network_settings.normalize:
            log.warning(
                "entities_not_normalized",
                behavior=self.brain_name,
                observations=lists,
                hint="normalize applies to vectors: let the environment send the numbers of entities between -1 and 1, "
                "or declare their scale",
            )

    def _note_group_rewards(self, item: Experience) -> None:
        """Warns once that trainers of single agents do not handle group rewards as intended."""
        group_rewards = item.chunk.columns.get("group_reward")
        if self._is_told_of_groups or group_rewards is None or not group_rewards.any():
            return
        self._is_told_of_groups = True
        log.warning(
            "group_rewards",
            behavior=self.brain_name,
            note=f"{self.trainer_settings.trainer_type} adds group rewards to each agent's own rewards and does "
            "not assign credit among group members; trainer_type: poca does",
        )

    def _process_trajectory(self, item: Experience) -> None:
        self._metrics.queue_wait.observe(max(0.0, time.monotonic() - item.received_at))
        self._note_group_rewards(item)
        super()._process_trajectory(item)

    def receive(self, item: Experience) -> None:
        """Keeps the trainable segments of a chunk."""
        self.intake.receive(item)

    def setup(self) -> None:
        """Starts the measurement of the update."""
        self._metrics.stage.observe(self._stage_seconds)
        self._stage_seconds = 0.0
        self._clock.begin_update()

    def on_paused(self) -> None:
        """Stops the clock of the collection."""
        self._clock.pause()

    def on_resumed(self) -> None:
        """Continues the clock of the collection."""
        self._clock.resume()

    def _load_model(self, state: Mapping[str, Any]) -> None:
        super()._load_model(state)
        self._publish_statistics()
