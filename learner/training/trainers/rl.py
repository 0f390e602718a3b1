"""Reinforcement-learning trainers: episodes, versions, summaries and checkpoints around an update.

`learner.training.trainers.on_policy` and `learner.training.trainers.replay` collect experience.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import structlog
from rollcast.policies import PolicyDescription
from torch import Tensor

from learner.link.to_front import NOT_TRAINING
from learner.link.to_trainers import Experience
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.meters import BehaviorMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.policies import StoredPolicy
from learner.shared.saved_values import count, reason
from learner.shared.settings.hyperparameters import HyperparameterSettings
from learner.training.export.card import Origin
from learner.training.export.describe import Progress
from learner.training.networks.fit import CRITIC_ONLY, require_critic_only
from learner.training.networks.observations import is_entities
from learner.training.trainers.base import Trainer, TrainerContext
from learner.training.trainers.episode_statistics import EpisodeStatistics, extrinsic_strength
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


Hyper = TypeVar("Hyper", bound=HyperparameterSettings)

STATE_FORMAT = 2
_NO_SENSE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors raised for a readable state that is incomplete, has other settings, or belongs to another trainer."""
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
        behavior, service = context.behavior, context.service
        self.episode_statistics = EpisodeStatistics(
            context.stats,
            service.reward_buffer_episodes,
            extrinsic_strength(self.trainer_settings),
            metrics=context.metrics,
            numbers=self.numbers,
            lessons=context.lessons,
            grouped=self.trainer_settings.traits.grouped or behavior.spec.grouped,
            present=lambda: context.roster.sources(behavior.name),
        )
        self.collected_rewards: dict[str, float] = {}
        self._version = 0
        self._optimizer_steps = 0
        self._steps_trained = 0
        self._steps_untrained = 0  # in discarded updates, or still collected when training ended
        self._failed_updates = 0
        self._is_told_of_groups = False
        self._metrics = context.metrics
        self._clock = UpdateClock(context.stats, context.metrics)
        self._stage_seconds = 0.0  # since the last update
        self.policy = self.create_policy(behavior.spec)
        self.add_policy(behavior.name, self.policy)
        self.create_optimizer()
        self._note_entities()

    @property
    def get_step(self) -> int:
        """Steps taken for training, whatever their outcome; never falls."""
        return self._steps_trained + self._steps_untrained + self._collected_steps

    @property
    def _collected_steps(self) -> int:
        """Steps taken that are in no completed update yet."""
        return 0

    @property
    def steps_trained(self) -> int:
        """Steps in completed updates."""
        return self._steps_trained

    @property
    def version(self) -> int:
        """The policy version, which is the number of completed updates."""
        return self._version

    @property
    def optimizer_steps(self) -> int:
        """Gradient steps in completed updates."""
        return self._optimizer_steps

    @property
    def reward_buffer(self) -> deque[float]:
        """The returns of the newest training episodes."""
        return self.episode_statistics.returns

    @property
    def episodes(self) -> int:
        """Training episodes so far."""
        return self.episode_statistics.episodes

    @property
    def acts_uniformly(self) -> bool:
        """True if actors take uniform actions instead of those of the next published version."""
        return False

    def mean_return(self) -> float | None:
        """Returns the mean of `reward_buffer`; None before the first episode."""
        return self.episode_statistics.mean()

    def least_mean_return(self) -> float | None:
        """Returns the smallest of `mean_return` and the means without the episodes of any one source."""
        return self.episode_statistics.least_mean()

    def mean_return_since_update(self) -> float | None:
        """Returns the mean over the episodes since the last update, or of `reward_buffer` if none ended."""
        return self.episode_statistics.mean_since_update()

    @staticmethod
    def own_hyperparameters(context: TrainerContext, kind: type[Hyper]) -> Hyper:
        """Returns the behavior's hyperparameters, typed as ``kind``; works before `__init__` sets anything.

        Args:
            context: Context of the trainer.
            kind: The trainer's settings model.

        Raises:
            TypeError: The hyperparameters are of another type, which is a fault in the trainer's code.
        """
        found = context.behavior.settings.hyperparameters
        if not isinstance(found, kind):
            raise TypeError(
                f"the settings of {context.behavior.name} are {type(found).__name__}, not {kind.__name__}: the "
                f"trainer's settings_model must be a subclass of {kind.__module__}.{kind.__name__}"
            )
        return found

    @abstractmethod
    def create_optimizer(self) -> None:
        """Creates the remaining networks and the optimizer."""

    @abstractmethod
    def _publish_statistics(self) -> None:
        """Copies running statistics of the observations into the acting networks."""

    @abstractmethod
    def model_state(self) -> dict[str, Any]:
        """Returns networks, optimizer, normalizer and generators."""

    @abstractmethod
    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Loads what `model_state` returned.

        Raises:
            ValueError, KeyError, RuntimeError: The state does not fit or holds impossible numbers.
        """

    def start(self) -> None:
        """Publishes the current version."""
        self._publisher = self.context.open_publisher(self.policy)
        self._publish()

    def _complete_update(self, steps: int) -> None:
        """Counts a successful update: records and publishes a new version.

        Args:
            steps: Steps that this update trained for the first time.
        """
        self._failed_updates = 0
        self._version += 1
        self.episode_statistics.note_update()
        self._steps_trained += steps
        self.context.outcomes.trained(steps)
        with self._metrics.publish.time():
            self._publish()
        self.note_update()

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
        self.episode_statistics.add(item.chunk, item.source)
        self._note_group_rewards(item)
        if self.is_training:
            self.intake.receive(item)
        else:
            self.intake.drop_whole(NOT_TRAINING, item)

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

    @property
    def published(self) -> PolicyDescription:
        """Header of the newest version that actors can get; available from `start` on."""
        return self._published

    def publish_present(self, *, keep: bool = False) -> None:
        """Does nothing unless overridden, because each change is already published.

        Args:
            keep: Keeps the newest version available until its behavior is released, even after newer versions.
        """
        if keep:
            self._publisher.keep()

    def snapshot(self) -> StoredPolicy:
        """Publishes the state that `state_dict` would save now, and returns it; call it between two turns."""
        self.publish_present()
        return self._publisher.newest

    def _publish(self, *, keep: bool = False) -> None:
        self.settle()
        state: Mapping[str, Tensor] = self.policy.state_dict()
        progress = Progress(self._version, self._optimizer_steps, self._steps_trained, self.acts_uniformly)
        if (history := self.context.outcomes.history) is not None:
            history.published(self._version)
        self._published = self._publisher.publish(state, progress, keep=keep)
        self.numbers["last_publish_timestamp_seconds"] = time.time()

    def _cadence(self, before: int) -> None:
        """Writes a summary and a checkpoint if the steps since ``before`` crossed a multiple of their interval."""
        now = self.get_step
        summary_freq = self.trainer_settings.summary_freq
        if now // summary_freq > before // summary_freq:
            self.write_summary(now // summary_freq * summary_freq)
        interval = self.trainer_settings.checkpoint_interval
        if now // interval > before // interval and self.should_still_train:
            self.save_model()

    def write_summary(self, step: int) -> None:
        """Passes the collected statistics to the writers under a step."""
        self.stats_reporter.set_stat("Is Training", float(self.should_still_train))
        self.episode_statistics.report_lessons()
        self.stats_reporter.write_stats(step)

    def export_model(self, path: Path) -> None:
        """Writes the model that Unity loads."""
        from learner.training.export.unity import export_unity  # noqa: PLC0415 - onnx takes half a second to import

        export_unity(self.policy, path, origin=Origin(self.context.run_id, self.get_step))

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that training depends on, except steps in an unfinished buffer."""
        return {
            "format": STATE_FORMAT,
            "trainer_type": self.trainer_settings.trainer_type,
            CRITIC_ONLY: sorted(set(self.trainer_settings.network_settings.critic_only)),
            "version": self._version,
            "optimizer_steps": self._optimizer_steps,
            "steps_trained": self._steps_trained,
            "steps_failed": self._steps_untrained,
            "failed_updates": self._failed_updates,
            "tally": self.episode_statistics.state_dict(),
            "model": self.model_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state.

        Raises:
            UserError: The state does not fit this trainer.
        """
        with self._taking_over():
            self._load_model(state)
            self._load_counts(state)

    def load_initial_state(self, state: Mapping[str, Any]) -> None:
        """Starts with the networks, optimizer and statistics of another run's saved state; steps count from 0.

        Raises:
            UserError: The state does not fit this trainer.
        """
        with self._taking_over():
            self._load_model(state)

    @contextmanager
    def _taking_over(self) -> Iterator[None]:
        """Reports in one line what is wrong with a state loaded inside the block."""
        try:
            yield
        except _NO_SENSE as error:
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the saved state of {self.brain_name} does not fit the run file: {reason(error)}; restore the "
                "settings it was made with, use another checkpoint, or start a new run",
            ) from error

    def _load_model(self, state: Mapping[str, Any]) -> None:
        trainer_type = self.trainer_settings.trainer_type
        if (state["format"], state["trainer_type"]) != (STATE_FORMAT, trainer_type):
            raise ValueError(
                f"it has the format {state['format']!s:.40} of trainer {state['trainer_type']!s:.40}, not the format "
                f"{STATE_FORMAT} of trainer {trainer_type}"
            )
        require_critic_only(state, self.trainer_settings.network_settings.critic_only)
        self.load_model_state(state["model"])
        self._publish_statistics()

    def _load_counts(self, state: Mapping[str, Any]) -> None:
        """Loads the training counts; any exception means that the state does not fit."""
        self._version = count(state, "version")
        self._optimizer_steps = count(state, "optimizer_steps")
        self._steps_trained = count(state, "steps_trained")
        self._steps_untrained = count(state, "steps_failed")
        self._failed_updates = count(state, "failed_updates")
        self.episode_statistics.load_state_dict(state["tally"])
