"""The base class of trainers: takes experience, publishes policies, and works in turns."""

from __future__ import annotations

import io
import json
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.link.to_front import Pace
from learner.link.to_trainers import Declared, Experience
from learner.link.turns import TurnKind
from learner.shared.observe.behavior_state import Field, TrainerStats, check_own_fields, described
from learner.shared.observe.meters import BehaviorMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.policies import StoredPolicy
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from learner.training.curriculum.lessons import Lessons, no_lessons
from learner.training.export.describe import Progress
from learner.training.networks.policy import PolicyNetwork
from learner.training.optimizers.reduce import Reduce, SingleLearner
from learner.training.trainers.conductor import Conductor
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
    @abstractmethod
    def get_step(self) -> int:
        """Steps so far, as counted by schedules, summaries and ``max_steps``."""

    @property
    @abstractmethod
    def steps_trained(self) -> int:
        """Steps in completed updates."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The policy version, which is the number of completed updates."""

    @property
    @abstractmethod
    def reward_buffer(self) -> deque[float]:
        """The returns of the newest training episodes."""

    @property
    @abstractmethod
    def episodes(self) -> int:
        """Training episodes so far."""

    @abstractmethod
    def mean_return(self) -> float | None:
        """Returns the mean of `reward_buffer`; None before the first episode."""

    def least_mean_return(self) -> float | None:
        """Returns the smallest of `mean_return` and the means without the episodes of any one source.

        A source is a principal, or an actor if all belong to one principal. Decisions use this value, so that no source
        makes them alone where there are several; see `learner.shared.leave_one_out`.
        """
        return self.mean_return()

    def mean_return_since_update(self) -> float | None:
        """Returns the mean return since the last update, for the list of checkpoints; `mean_return` if unknown."""
        return self.mean_return()

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

    @abstractmethod
    def start(self) -> None:
        """Publishes the current version; called once, after loading and before the first `advance`."""

    @abstractmethod
    def pace(self) -> Pace:
        """Returns how far ahead actors may run, and the version they wait for."""

    def settle(self) -> None:
        """Sends the service the outcome of steps since the last call, if any, and the pace.

        `advance` calls it before and after an update. Also call it before publishing a policy: actors must not receive
        a policy before the service knows which steps trained it.
        """
        self.context.outcomes.flush(self.pace())

    @property
    @abstractmethod
    def published(self) -> PolicyDescription:
        """Header of the newest version that actors can get; available from `start` on."""

    @abstractmethod
    def publish_present(self, *, keep: bool = False) -> None:
        """Publishes the state that `state_dict` would save now; call it between two turns.

        Args:
            keep: Keeps this version available until its behavior is released, even after newer versions.
        """

    def snapshot(self) -> StoredPolicy:
        """Publishes the state that `state_dict` would save now, and returns it; call it between two turns.

        Raises:
            NotImplementedError: The trainer has no self-play; the trait ``plays`` of its settings says so.
        """
        raise NotImplementedError

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
        items = self.queue.get()
        if items:
            self.tell(TurnKind.COLLECT, items[-1].sequence)
        for item in items:
            self._process_trajectory(item)
        return bool(items)

    @abstractmethod
    def _process_trajectory(self, item: Experience) -> None:
        """Takes in one chunk."""

    @abstractmethod
    def is_trainable(self) -> bool:
        """Returns whether there is enough new experience for an update."""

    @abstractmethod
    def setup(self) -> None:
        """Prepares `train`; called before it."""

    @abstractmethod
    def train(self) -> None:
        """Changes the parameters."""

    @abstractmethod
    def sync_models(self) -> None:
        """Publishes the trained parameters to the actors."""

    @abstractmethod
    def teardown(self) -> None:
        """Cleans up after `sync_models`; also called if `train` failed."""

    @abstractmethod
    def on_paused(self) -> None:
        """Called when the run is paused; no turn follows until `on_resumed`."""

    @abstractmethod
    def on_resumed(self) -> None:
        """Called when the run continues."""

    @abstractmethod
    def finish(self) -> None:
        """Ends training; collected steps that were not trained are recorded as dropped."""

    def save_model(self) -> None:
        """Writes a checkpoint of the model, if a saver is set."""
        if self.model_saver is not None:
            self.model_saver.save(self)

    @abstractmethod
    def export_model(self, path: Path) -> None:
        """Writes the model that Unity loads."""

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
    def state_dict(self) -> dict[str, Any]:
        """Returns everything that training depends on: tensors, numbers, strings, lists and dicts."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state.

        Raises:
            UserError: The state does not fit this trainer.
        """

    @abstractmethod
    def load_initial_state(self, state: Mapping[str, Any]) -> None:
        """Starts with the networks, optimizer and statistics of another run's saved state; steps count from 0.

        Raises:
            UserError: The state does not fit this trainer.
        """
