"""Trainers that learn by reinforcement: episodes, versions, summaries and checkpoints around an update.

How experience is collected is in `learner.trainers.on_policy` and `learner.trainers.replay`.
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
from torch import Tensor

from learner.common.exits import ExitCode, UserError
from learner.common.saved_values import count, reason
from learner.link.experience import QueuedChunk
from learner.observe.metrics.behaviors import BehaviorMetrics
from learner.observe.stats import StatsReporter
from learner.publish.describe import Progress
from learner.settings.hyperparameters import HyperparameterSettings
from learner.trainers.base import Trainer, TrainerContext
from learner.trainers.tally import EpisodeTally, extrinsic_strength

log = structlog.get_logger(__name__)


class TrainerFailedError(UserError):
    """A trainer cannot go on; the learner ends with exit code TRAINER_FAILED.

    Args:
        message: one line that states the value, the limit and the next step.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.TRAINER_FAILED, message)


class UpdateClock:
    """Measures the phases of a trainer and reports them; the time of a pause belongs to neither.

    Args:
        stats: where seconds and steps per second go.
        metrics: where the seconds of collections go, too.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        stats: StatsReporter,
        metrics: BehaviorMetrics,
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
        """Ends an update of so many environment steps, reports both phases, and begins the next collection."""
        seconds = self._next_phase()
        self._stats.add_stat("Rollcast/Collect Seconds", self._collect_seconds)
        self._stats.add_stat("Rollcast/Update Seconds", seconds)
        self._stats.add_stat("Rollcast/Steps per Second", steps / max(self._collect_seconds + seconds, 1e-9))

    def pause(self) -> None:
        """Stops the clock."""
        self._paused_at = self._clock()

    def resume(self) -> None:
        """Lets the clock go on."""
        self._phase_began += self._clock() - self._paused_at

    def _next_phase(self) -> float:
        now = self._clock()
        seconds, self._phase_began = now - self._phase_began, now
        return seconds


Hyper = TypeVar("Hyper", bound=HyperparameterSettings)

STATE_FORMAT = 2
_NO_SENSE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a state can provoke that is a readable file, and incomplete, of other settings, or of somebody else."""
MAX_FAILED_UPDATES = 3
"""Updates in a row that may be thrown away because their result was not finite."""


class RLTrainer(Trainer):
    """What trainers share that learn by reinforcement; how they collect and what an update is, their own classes say.

    Args:
        context: everything from outside.

    Raises:
        UserError: the settings do not fit the behavior.
    """

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        behavior, service = context.behavior, context.service
        self.tally = EpisodeTally(
            context.stats,
            service.reward_buffer_episodes,
            extrinsic_strength(self.trainer_settings),
            metrics=context.metrics,
            lessons=context.lessons,
            evaluations=context.evaluations,
        )
        self.collected_rewards: dict[str, float] = {}
        self._version = 0
        self._optimizer_steps = 0
        self._steps_trained = 0
        self._steps_untrained = 0  # that counted: of updates that were not finite, or collected when training ended
        self._failed_updates = 0
        self._is_told_of_groups = False
        self._metrics = context.metrics
        self._clock = UpdateClock(context.stats, context.metrics)
        self.policy = self.create_policy(behavior.spec)
        self.add_policy(behavior.name, self.policy)
        self.create_optimizer()

    @property
    def get_step(self) -> int:
        """Steps that were taken for training, whatever became of them there: it never falls."""
        return self._steps_trained + self._steps_untrained + self._collected_steps

    @property
    def _collected_steps(self) -> int:
        """Steps that were taken and are in no completed update yet."""
        return 0

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

    @staticmethod
    def own_hyperparameters(context: TrainerContext, kind: type[Hyper]) -> Hyper:
        """Returns the hyperparameters of the behavior as those of a trainer; also before `__init__` has set anything.

        Args:
            context: of the trainer.
            kind: the trainer's settings model.

        Raises:
            TypeError: they are of another kind; a fault of the trainer's code.
        """
        found = context.behavior.settings.hyperparameters
        if not isinstance(found, kind):
            raise TypeError(
                f"{context.behavior.name} has {type(found).__name__}, not {kind.__name__}: the trainer's settings_model must "
                f"be a subclass of {kind.__module__}.{kind.__name__}"
            )
        return found

    @abstractmethod
    def create_optimizer(self) -> None:
        """Makes the rest of the networks and their optimizer."""

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
            ValueError, KeyError, RuntimeError: it does not fit, or holds numbers that cannot be.
        """

    def start(self) -> None:
        """Publishes the present version and sets the pace."""
        self._publisher = self.context.open_publisher(self.policy)
        self._publish()
        self._set_pace()

    @abstractmethod
    def _set_pace(self) -> None:
        """Tells the service what is held, and which version actors shall wait for."""

    def _complete_update(self, steps: int) -> None:
        """Counts an update that went well: a new version, in the books and with the actors.

        Args:
            steps: that it trained and none before it did.
        """
        self._failed_updates = 0
        self._version += 1
        self.tally.note_update()
        self._steps_trained += steps
        with self._metrics.publish.time():
            self._publish()
        self.context.ledger.trained(self.brain_name, steps)
        self._metrics.note_update()

    def _give_update_up(self, steps: int) -> None:
        """Counts an update whose result was not finite, and that left everything as it was.

        Args:
            steps: of experience that goes with it.

        Raises:
            TrainerFailedError: it is one too many.
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
            advice = "lower learning_rate, set max_grad_norm, or look for rewards of very large size"
            if faulty:
                advice = (
                    f"and so were rewards of the reward signal {faulty}: lower its learning_rate or strength, or, if a "
                    "package brings it, repair that"
                )
            raise TrainerFailedError(
                f"{self._failed_updates} updates of {self.brain_name} in a row had losses, gradients or actions that are "
                f"not finite{', ' if faulty else ': '}{advice}"
            )

    def _take_faulty_signals(self) -> tuple[str, ...]:
        """Returns the reward signals whose rewards were not finite since the last call."""
        return ()

    def _note_group_rewards(self, item: QueuedChunk) -> None:
        """Says once that group rewards are not what trainers of single agents were made for."""
        group_rewards = item.chunk.columns.get("group_reward")
        if self._is_told_of_groups or group_rewards is None or not group_rewards.any():
            return
        self._is_told_of_groups = True
        log.warning(
            "group_rewards",
            behavior=self.brain_name,
            note=f"{self.trainer_settings.trainer_type} adds each agent's group rewards to its own and gives no credit "
            "among group mates",
        )

    def on_paused(self) -> None:
        """Stops the clock of the collection."""
        self._clock.pause()

    def on_resumed(self) -> None:
        """Lets the clock of the collection go on."""
        self._clock.resume()

    def _publish(self) -> None:
        state: Mapping[str, Tensor] = self.policy.state_dict()
        self._publisher.publish(state, Progress(self._version, self._optimizer_steps, self._steps_trained))
        self._metrics.note_published()

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
        with self._taking_over():
            self._load_model(state)
            self._load_counts(state)

    def load_initial_state(self, state: Mapping[str, Any]) -> None:
        """Starts with the networks, optimizer and statistics of another run's saved state; steps count from 0.

        Raises:
            UserError: it does not fit this trainer.
        """
        with self._taking_over():
            self._load_model(state)

    @contextmanager
    def _taking_over(self) -> Iterator[None]:
        """Says in one line what is wrong with a state that is taken over inside the block."""
        try:
            yield
        except _NO_SENSE as error:
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the saved state of {self.brain_name} does not fit the run file: {reason(error)}; restore the settings "
                "it was made with, take another checkpoint, or start a new run",
            ) from error

    def _load_model(self, state: Mapping[str, Any]) -> None:
        trainer_type = self.trainer_settings.trainer_type
        if (state["format"], state["trainer_type"]) != (STATE_FORMAT, trainer_type):
            raise ValueError(
                f"it is of format {state['format']!s:.40} for trainer {state['trainer_type']!s:.40}, not of format "
                f"{STATE_FORMAT} for trainer {trainer_type}"
            )
        self.load_model_state(state["model"])
        self._publish_statistics()

    def _load_counts(self, state: Mapping[str, Any]) -> None:
        """Takes over how far training was; everything that is raised says that the state does not fit."""
        self._version = count(state, "version")
        self._optimizer_steps = count(state, "optimizer_steps")
        self._steps_trained = count(state, "steps_trained")
        self._steps_untrained = count(state, "steps_failed")
        self._failed_updates = count(state, "failed_updates")
        self.tally.load_state_dict(state["tally"])
