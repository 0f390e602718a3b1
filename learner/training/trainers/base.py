"""The base class of trainers: takes experience, publishes policies, and works in turns."""

from __future__ import annotations

import io
import json
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.link.to_front import NOT_TRAINING, Pace
from learner.link.to_trainers import Declared, Experience
from learner.link.turns import TurnKind
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.behavior_state import Field, TrainerStats, check_own_fields, described
from learner.shared.observe.meters import BehaviorMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.policies import StoredPolicy
from learner.shared.saved_values import count, reason
from learner.shared.settings.hyperparameters import HyperparameterSettings
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from learner.training.curriculum.lessons import Lessons, no_lessons
from learner.training.export.card import Origin
from learner.training.export.describe import Progress
from learner.training.networks.fit import CRITIC_ONLY, require_critic_only
from learner.training.networks.policy import PolicyNetwork
from learner.training.optimizers.reduce import Reduce, SingleLearner
from learner.training.trainers.companions.group import Companions
from learner.training.trainers.conductor import Conductor
from learner.training.trainers.episode_statistics import EpisodeStatistics, extrinsic_strength
from learner.training.trainers.experience_history import whole
from learner.training.trainers.outcome_report import ExperienceQueue, OutcomeReport
from learner.training.trainers.roster import Roster


class Publisher(Protocol):
    """Publishes the versions of one network to the actors."""

    def publish(self, state: Mapping[str, Tensor], progress: Progress, *, keep: bool = False) -> PolicyDescription:
        """Makes a version available to actors.

        Args:
            state: The network's ``state_dict``, on any device; not retained.
            progress: Progress for the header.
            keep: Keeps this version available until its behavior is released, even after newer versions.

        Returns:
            Header of the version.
        """

    def keep(self) -> None:
        """Keeps the newest version available until its behavior is released."""

    @property
    def newest(self) -> StoredPolicy:
        """The newest version; available after the first publication."""


class ModelSaver(Protocol):
    """Writes a trainer's model files."""

    def save(self, trainer: Trainer) -> None:
        """Saves a checkpoint of the trainer's current state."""


@dataclass(frozen=True, slots=True)
class TrainerContext:
    """Everything that a trainer receives.

    Attributes:
        behavior: Specification and settings of the behavior.
        queue: Source of experience.
        stats: Receives statistics.
        open_publisher: Exports and verifies the graph of a network, and returns the publisher of its versions.
        generation: Generation of this start of the learner.
        seed: Seed of weights and permutations.
        device: Device of networks and ring.
        service: The settings of the service.
        is_training: False for inference, which learns nothing.
        saver: Writes model files at each ``checkpoint_interval``; None writes none.
        reduce: Combines numbers over several learners.
        conductor: Tells the other learners what this trainer does.
        metrics: Counts events.
        lessons: Lessons of the run, shared by all trainers.
        roster: The present actors.
        run_id: Name of the run.
        companions: Trainers of further models from the same experience.
    """

    behavior: Declared
    queue: ExperienceQueue
    stats: StatsReporter
    open_publisher: Callable[[PolicyNetwork], Publisher]
    generation: int
    seed: int
    device: torch.device
    service: ServiceSettings
    is_training: bool = True
    saver: ModelSaver | None = None
    reduce: Reduce = field(default_factory=SingleLearner)
    conductor: Conductor = field(default_factory=Conductor)
    metrics: BehaviorMeters = field(default_factory=BehaviorMeters)
    lessons: Lessons = field(default_factory=no_lessons)
    roster: Roster = field(default_factory=Roster)
    run_id: str = ""
    companions: Companions = field(default_factory=Companions)

    @property
    def outcomes(self) -> OutcomeReport:
        """Returns the queue's report of outcomes, which records what became of the trainer's steps."""
        return self.queue.outcomes


class RingNumbers(NamedTuple):
    """Counts of a trainer's experience.

    Attributes:
        staged_steps: Steps taken from the queue that are not in the ring yet.
        steps: Steps in the ring, including those of the current update.
        capacity_steps: Rows of the ring.
    """

    staged_steps: int = 0
    steps: int = 0
    capacity_steps: int = 0


Hyper = TypeVar("Hyper", bound=HyperparameterSettings)
STATE_FORMAT = 2
_NO_SENSE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors raised for a readable state that is incomplete, has other settings, or belongs to another trainer."""


class Trainer(ABC):
    """Trains the policy of one behavior.

    `advance` is one turn: it takes everything that waits in the queue and, if `is_trainable`, runs `setup`, `train`,
    `sync_models` and `teardown`. All methods are called from one thread.

    Args:
        context: Everything the trainer receives from the run.

    Attributes:
        fields: Class attribute that describes the numbers missing in `learner.shared.observe.behavior_state.FIELDS`.
        numbers: Reported numbers by name of their field; shown after the turn.
    """

    fields: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, context: TrainerContext) -> None:
        self.context = context
        check_own_fields(self.fields)
        now = time.time()  # so that an alert on the age of the last update counts from the start of the trainer
        self.numbers: dict[str, float] = {"last_update_timestamp_seconds": now, "last_publish_timestamp_seconds": now}
        self.policies: dict[str, PolicyNetwork] = {}
        behavior, self._metrics = context.behavior, context.metrics
        self.episode_statistics = EpisodeStatistics(
            context.stats,
            context.service.reward_buffer_episodes,
            extrinsic_strength(self.trainer_settings),
            metrics=context.metrics,
            numbers=self.numbers,
            lessons=context.lessons,
            grouped=self.trainer_settings.traits.grouped or behavior.spec.grouped,
            present=lambda: context.roster.sources(behavior.name),
        )
        self._version = 0
        self._optimizer_steps = 0
        self._steps_trained = 0
        self._steps_untrained = 0  # in discarded updates, or still collected when training ended
        self._failed_updates = 0
        self._collected = 0
        self.policy = self.create_policy(behavior.spec)
        self.add_policy(behavior.name, self.policy)

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

    @property
    def brain_name(self) -> str:
        """Name of the behavior."""
        return self.context.behavior.name

    @property
    def trainer_settings(self) -> TrainerSettings:
        """The behavior's block of the run file."""
        return self.context.behavior.settings

    def change_settings(self, settings: TrainerSettings) -> None:
        """Takes over settings of which `Live` ones have changed; call it between two turns, if there is no `obstacle_to` it."""
        self.context.conductor.tell(
            self.context.behavior.index, TurnKind.SET, settings=json.dumps(settings.model_dump(mode="json"))
        )
        self.context = replace(self.context, behavior=replace(self.context.behavior, settings=settings))
        self.settings_changed()

    def settings_changed(self) -> None:
        """Computes again what depends on `Live` settings; called when they have changed, and by `__init__` of Rollcast's trainers."""
        return

    def obstacle_to(self, settings: TrainerSettings) -> str:
        """Returns why the trainer cannot take over changed settings, in one line; empty if it can."""
        del settings
        return ""

    @property
    def queue(self) -> ExperienceQueue:
        """Source of experience."""
        return self.context.queue

    @property
    def is_training(self) -> bool:
        """Returns whether the trainer learns; False for inference."""
        return self.context.is_training

    @property
    def threaded(self) -> bool:
        """Returns whether actors continue while an update runs."""
        return self.trainer_settings.threaded

    @property
    def stats_reporter(self) -> StatsReporter:
        """Receives statistics."""
        return self.context.stats

    @property
    def model_saver(self) -> ModelSaver | None:
        """Writes model files; None writes none."""
        return self.context.saver

    @property
    def get_max_steps(self) -> int:
        """Number of steps after which training ends."""
        return self.trainer_settings.max_steps

    @property
    def should_still_train(self) -> bool:
        """Returns whether more updates follow."""
        return self.is_training and self.get_step < self.get_max_steps

    @property
    def get_step(self) -> int:
        """Steps taken for training, whatever their outcome; never falls."""
        return self._steps_trained + self._steps_untrained + self._collected_steps

    @property
    def _collected_steps(self) -> int:
        """Steps taken that are in no completed update yet."""
        return self._collected

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
        """Returns the smallest of `mean_return` and the means without the episodes of any one source.

        A source is a principal, or an actor if all belong to one principal. Decisions use this value, so that no source
        makes them alone where there are several; see `learner.shared.leave_one_out`.
        """
        return self.episode_statistics.least_mean()

    def mean_return_since_update(self) -> float | None:
        """Returns the mean over the episodes since the last update, or of `reward_buffer` if none ended."""
        return self.episode_statistics.mean_since_update()

    @property
    def ring(self) -> RingNumbers:
        """Counts of the trainer's experience."""
        return RingNumbers()

    def stats(self) -> TrainerStats:
        """Returns the current state of the trainer; call it in the trainer's thread.

        Raises:
            ValueError: No field describes one of `numbers`.
        """
        ring = self.ring
        returns = self.reward_buffer
        return TrainerStats(
            version=self.version,
            env_steps_trained=self.steps_trained,
            episodes=self.episodes,
            mean_return=self.mean_return(),
            is_full=len(returns) == returns.maxlen,
            numbers={
                **described(type(self).__name__, self.numbers, self.fields),
                "staged_steps": ring.staged_steps,
                "ring_steps": ring.steps,
                "ring_capacity_steps": ring.capacity_steps,
            },
            fields=self.fields,
            max_steps=self.get_max_steps,
        )

    def note_update(self, count: int = 1) -> None:
        """Counts completed updates."""
        self.numbers["updates"] = self.numbers.get("updates", 0) + count
        self.numbers["last_update_timestamp_seconds"] = time.time()

    def note_losses(self, *, policy: float, value: float, entropy: float) -> None:
        """Reports the weighted terms that add up to the loss; the entropy term is negative for a bonus."""
        loss = policy + value + entropy
        self.numbers.update(loss=loss, policy_loss=policy, value_loss=value, entropy_loss=entropy)

    @property
    def untrained_steps(self) -> int:
        """Steps taken from the queue that no update has used yet; 0 at the end of a lock-step round."""
        return self.ring.staged_steps + self.ring.steps

    @abstractmethod
    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Creates the acting network."""

    def add_policy(self, behavior_id: str, policy: PolicyNetwork) -> None:
        """Registers a policy under a behavior id."""
        self.policies[behavior_id] = policy

    def get_policy(self, behavior_id: str) -> PolicyNetwork:
        """Returns the policy of a behavior id (``Name`` or ``Name?team=1``; teams share one).

        Raises:
            KeyError: No policy has this id.
        """
        return self.policies[behavior_id.split("?", maxsplit=1)[0]]

    def start(self) -> None:
        """Publishes the current version; called once, after loading and before the first `advance`."""
        self._publisher = self.context.open_publisher(self.policy)
        self._publish()

    def pace(self) -> Pace:
        """Returns how far ahead actors may run, and the version they wait for; none unless overridden."""
        return Pace(ahead_limit_steps=ahead_limit_steps(self.trainer_settings))

    def settle(self) -> None:
        """Sends the service the outcome of steps since the last call, if any, and the pace.

        `advance` calls it before and after an update. Also call it before publishing a policy: actors must not receive
        a policy before the service knows which steps trained it.
        """
        self.context.outcomes.flush(self.pace())

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

    def advance(self) -> bool:
        """Takes one turn; returns whether it did any work."""
        is_busy = self.collect()
        if not (self.should_still_train and self.is_trainable()):
            self.settle()
            return is_busy
        self.tell(TurnKind.UPDATE)
        self.update()
        return True

    def update(self) -> None:
        """Runs one update."""
        self.setup()
        self.settle()  # actors that wait for this update must be notified now
        try:
            self.train()
            self.sync_models()
        finally:
            self.teardown()
            self.settle()  # also settles the steps of an update that failed

    def tell(self, kind: TurnKind, through: int = 0) -> None:
        """Tells the other learners what this trainer does next; see `learner.link.turns.Turn`."""
        self.context.conductor.tell(self.context.behavior.index, kind, through)

    def share_state(self) -> None:
        """Takes over the state of learner 0, which all learners call together; does nothing for a single learner."""
        reduce = self.context.reduce
        if reduce.ranks == 1:
            return
        self.tell(TurnKind.LOAD)
        content = io.BytesIO()
        if not reduce.rank:
            torch.save(self.state_dict(), content)
        received = reduce.broadcast(content.getvalue())
        if reduce.rank:
            self.load_state_dict(torch.load(io.BytesIO(received), map_location="cpu", weights_only=True))

    def collect(self) -> bool:
        """Takes everything that waits in the queue; returns whether anything was waiting."""
        items, before = self.queue.get(), self.get_step
        if items:
            self.tell(TurnKind.COLLECT, items[-1].sequence)
        for item in items:
            self._process_trajectory(item)
        if self.get_step > before:  # other trainers count steps later
            self._cadence(before)
            self.episode_statistics.note_progress(self.get_step / self.get_max_steps)
        return bool(items)

    def _process_trajectory(self, item: Experience) -> None:
        """Takes in one chunk: counts its episodes, and drops its steps unless the trainer learns."""
        self.episode_statistics.add(item.chunk, item.source)
        if self.is_training:
            self._collected += item.chunk.rows
            self.context.companions.add(item)
            self.receive(item)
            return
        if (history := self.context.outcomes.history) is not None:
            history.dropped(NOT_TRAINING, whole(item))
        self.context.outcomes.drop(NOT_TRAINING, item.chunk.rows)

    @abstractmethod
    def receive(self, item: Experience) -> None:
        """Keeps a chunk for `train`; its steps count as collected until `complete_update` or `finish`."""

    @abstractmethod
    def is_trainable(self) -> bool:
        """Returns whether there is enough new experience for an update."""

    def setup(self) -> None:  # noqa: B027
        """Prepares `train`; called before it."""

    @abstractmethod
    def train(self) -> None:
        """Changes the parameters."""

    @abstractmethod
    def sync_models(self) -> None:
        """Publishes the trained parameters to the actors, with `complete_update`."""

    def complete_update(self, steps: int) -> None:
        """Counts a successful update: records and publishes a new version.

        Args:
            steps: Steps that this update trained for the first time.
        """
        self._failed_updates = 0
        self._version += 1
        self.episode_statistics.note_update()
        self._collected -= steps
        self._steps_trained += steps
        self.context.outcomes.trained(steps)
        with self._metrics.publish.time():
            self._publish()
        self.note_update()

    def teardown(self) -> None:  # noqa: B027
        """Cleans up after `sync_models`; also called if `train` failed."""

    def on_paused(self) -> None:  # noqa: B027
        """Called when the run is paused; no turn follows until `on_resumed`."""

    def on_resumed(self) -> None:  # noqa: B027
        """Called when the run continues."""

    def finish(self) -> None:
        """Ends training; collected steps that were not trained are recorded as dropped."""
        self._steps_untrained += self._collected
        self.context.outcomes.drop(NOT_TRAINING, self._collected)
        self._collected = 0

    def save_model(self) -> None:
        """Writes a checkpoint of the model, if a saver is set."""
        if self.model_saver is not None:
            self.model_saver.save(self)

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

    def save_experience(self, folder: Path) -> None:
        """Writes experience that outlives updates into a folder next to a checkpoint, if the trainer keeps any.

        Args:
            folder: Folder of the behavior.

        Raises:
            WriteFailed: The experience cannot be written; earlier files are unchanged.
        """
        del folder  # most trainers keep none

    def load_experience(self, folder: Path) -> str:
        """Loads the experience that `save_experience` wrote, if readable; call it after `load_state_dict`.

        Args:
            folder: Folder of the behavior.

        Returns:
            Reason why the experience differs from that of the saved state; empty if it does not differ or the trainer
            keeps none.
        """
        del folder
        return ""

    @abstractmethod
    def model_state(self) -> dict[str, Any]:
        """Returns networks, optimizer, normalizer and generators."""

    @abstractmethod
    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Loads what `model_state` returned.

        Raises:
            ValueError, KeyError, RuntimeError: The state does not fit or holds impossible numbers.
        """

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
            "companions": self.context.companions.state_dict(),
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
        self.context.companions.load_state_dict(state.get("companions", {}))

    def _load_counts(self, state: Mapping[str, Any]) -> None:
        """Loads the training counts; any exception means that the state does not fit."""
        self._version = count(state, "version")
        self._optimizer_steps = count(state, "optimizer_steps")
        self._steps_trained = count(state, "steps_trained")
        self._steps_untrained = count(state, "steps_failed")
        self._failed_updates = count(state, "failed_updates")
        self.episode_statistics.load_state_dict(state["tally"])


def ahead_limit_steps(settings: TrainerSettings) -> int:
    """Returns how many steps may be unsettled (queued, staged, or in the update buffer) before actors get no credit.

    In addition, each session has an open allowance of agents * time_horizon, so that open segments can always be
    closed. An update needs ``buffer_size`` steps; a limit above that is reached only when an update is ready, so
    neither side waits for the other.

    With threads, actors fill the next buffer while the current one is trained. Without threads, a hold stops them at
    each update; the extra quarter of a buffer keeps them supplied with credit while the last chunks of the current
    buffer are on their way.
    """
    buffer_size = settings.hyperparameters.buffer_size
    if settings.threaded:
        return 2 * buffer_size + 1
    return buffer_size + max(buffer_size // 4, settings.time_horizon) + 1
