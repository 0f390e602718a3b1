"""What every trainer is: queues in, policies out, and one turn of its life after another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.curriculum.lessons import Lessons, no_lessons
from learner.ingest.behaviors import Behavior
from learner.ingest.ledger import Ledger
from learner.ingest.queue import TrajectoryQueue
from learner.link.evaluation import EvaluationSink, NoEvaluation
from learner.link.experience import QueuedChunk
from learner.networks.policy import PolicyNetwork
from learner.observe.metrics.behaviors import BehaviorMetrics
from learner.observe.metrics.learner import unobserved
from learner.observe.stats import StatsReporter
from learner.optimizers.reduce import Reduce, SingleLearner
from learner.publish.describe import Progress
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings


class Publisher(Protocol):
    """Takes the versions of one network to the actors."""

    def publish(self, state: Mapping[str, Tensor], progress: Progress) -> None:
        """Makes a version available.

        Args:
            state: the network's ``state_dict``, on any device; not to be kept.
            progress: what the header says.
        """


class ModelSaver(Protocol):
    """Writes a trainer's model files."""

    def save(self, trainer: Trainer) -> None:
        """Saves a checkpoint of the trainer as it is now."""


@dataclass(frozen=True, slots=True)
class TrainerContext:
    """Everything a trainer gets.

    Attributes:
        behavior: spec, settings and queue.
        ledger: the books.
        stats: where statistics go.
        open_publisher: exports and verifies the graph of a network, and returns where its versions go.
        generation: of this start of the learner.
        seed: of weights and permutations.
        device: where networks and ring are.
        service: the settings of the service.
        is_training: False for inference: nothing is learned.
        saver: where model files are written at each ``checkpoint_interval``; None writes none.
        reduce: how several learners combine their numbers.
        metrics: where events are counted.
        lessons: what the environments are set to; the run's, shared by all trainers.
        evaluations: where episodes of evaluations go; they are nothing to a trainer.
    """

    behavior: Behavior
    ledger: Ledger
    stats: StatsReporter
    open_publisher: Callable[[PolicyNetwork], Publisher]
    generation: int
    seed: int
    device: torch.device
    service: ServiceSettings
    is_training: bool = True
    saver: ModelSaver | None = None
    reduce: Reduce = field(default_factory=SingleLearner)
    metrics: BehaviorMetrics = field(default_factory=unobserved)
    lessons: Lessons = field(default_factory=no_lessons)
    evaluations: EvaluationSink = field(default_factory=NoEvaluation)


class RingNumbers(NamedTuple):
    """Where a trainer's experience is.

    Attributes:
        staged_steps: taken from the queue and not in the ring yet.
        steps: in the ring, those of the present update included.
        capacity_steps: rows of the ring.
    """

    staged_steps: int = 0
    steps: int = 0
    capacity_steps: int = 0


class Trainer(ABC):
    """Trains the policy of one behavior.

    `advance` is one turn: it takes what waits in the queues, and if `is_trainable`, runs `setup`, `train`,
    `sync_models` and `teardown`. All methods are called from one thread.

    Args:
        context: everything from outside.

    Attributes:
        mean_lag: versions between acting and learning, mean over the rows of the last update.
        log_prob_error_max: largest difference between recorded and own log-probability on fresh rows, last update.
    """

    def __init__(self, context: TrainerContext) -> None:
        self.context = context
        self.mean_lag = 0.0
        self.log_prob_error_max = 0.0
        self.policies: dict[str, PolicyNetwork] = {}

    @property
    def brain_name(self) -> str:
        """The behavior's name."""
        return self.context.behavior.name

    @property
    def trainer_settings(self) -> TrainerSettings:
        """The behavior's block of the run file."""
        return self.context.behavior.settings

    @property
    def queue(self) -> TrajectoryQueue:
        """Where experience comes from."""
        return self.context.behavior.queue

    @property
    def is_training(self) -> bool:
        """Whether it learns at all; False for inference."""
        return self.context.is_training

    @property
    def threaded(self) -> bool:
        """Whether actors go on while an update runs."""
        return self.trainer_settings.threaded

    @property
    def stats_reporter(self) -> StatsReporter:
        """Where statistics go."""
        return self.context.stats

    @property
    def model_saver(self) -> ModelSaver | None:
        """Who writes model files, if anyone."""
        return self.context.saver

    @property
    def get_max_steps(self) -> int:
        """After how many steps training ends."""
        return self.trainer_settings.max_steps

    @property
    def should_still_train(self) -> bool:
        """Whether more updates are to come."""
        return self.is_training and not self.context.reduce.any_agrees(self.get_step >= self.get_max_steps)

    @property
    @abstractmethod
    def get_step(self) -> int:
        """Steps so far, as schedules, summaries and ``max_steps`` count them."""

    @property
    @abstractmethod
    def steps_trained(self) -> int:
        """Steps in completed updates."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The policy version: completed updates."""

    @property
    @abstractmethod
    def reward_buffer(self) -> deque[float]:
        """Returns of the newest training episodes."""

    @property
    @abstractmethod
    def episodes(self) -> int:
        """Training episodes so far."""

    @abstractmethod
    def mean_return(self) -> float | None:
        """Returns the mean of `reward_buffer`; None before the first episode."""

    def mean_return_since_update(self) -> float | None:
        """Returns what the list of checkpoints says of one: the mean since the last update, where a trainer knows it."""
        return self.mean_return()

    @property
    def ring(self) -> RingNumbers:
        """Where its experience is; may be read from any thread, and is then about right."""
        return RingNumbers()

    @property
    def untrained_steps(self) -> int:
        """Steps that were taken for training and wait for it; in lock-step none are left when a round is over."""
        return self.ring.staged_steps + self.ring.steps

    @abstractmethod
    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Makes the network that acts."""

    def add_policy(self, behavior_id: str, policy: PolicyNetwork) -> None:
        """Makes a policy known under a behavior id."""
        self.policies[behavior_id] = policy

    def get_policy(self, behavior_id: str) -> PolicyNetwork:
        """Returns the policy of a behavior id (``Name`` or ``Name?team=1``; teams share one).

        Raises:
            KeyError: there is none.
        """
        return self.policies[behavior_id.split("?", maxsplit=1)[0]]

    @abstractmethod
    def start(self) -> None:
        """Publishes the present version and sets the pace; once, after loading and before the first `advance`."""

    def publish_present(self) -> None:  # noqa: B027 - most publish each change, and have nothing to do
        """Makes what `state_dict` would save now the newest version that actors can get; between two turns.

        To be overridden by trainers that change more often than they publish; others have done so already.
        """

    def advance(self) -> bool:
        """Takes one turn; returns whether there was anything to do."""
        is_busy = self.collect()
        if not (self.should_still_train and self.context.reduce.all_agree(self.is_trainable())):
            return is_busy
        self.setup()
        try:
            self.train()
            self.sync_models()
        finally:
            self.teardown()
        return True

    def collect(self) -> bool:
        """Takes what waits in the queues; returns whether there was anything."""
        items = self.queue.get()
        for item in items:
            self._process_trajectory(item)
        return bool(items)

    @abstractmethod
    def _process_trajectory(self, item: QueuedChunk) -> None:
        """Takes over one chunk."""

    @abstractmethod
    def is_trainable(self) -> bool:
        """Returns whether there is enough new experience for an update."""

    @abstractmethod
    def setup(self) -> None:
        """Is called before `train`."""

    @abstractmethod
    def train(self) -> None:
        """Changes the parameters."""

    @abstractmethod
    def sync_models(self) -> None:
        """Takes the trained parameters to those who act."""

    @abstractmethod
    def teardown(self) -> None:
        """Is called after `sync_models`, also if `train` failed."""

    @abstractmethod
    def on_paused(self) -> None:
        """Is called when the run is paused; no turn is taken until `on_resumed`."""

    @abstractmethod
    def on_resumed(self) -> None:
        """Is called when the run goes on."""

    @abstractmethod
    def finish(self) -> None:
        """Ends training for good: what was collected and not trained leaves the books as dropped."""

    def save_model(self) -> None:
        """Writes a checkpoint of the model, if anyone is there to write it."""
        if self.model_saver is not None:
            self.model_saver.save(self)

    @abstractmethod
    def export_model(self, path: Path) -> None:
        """Writes the model that Unity loads."""

    def save_experience(self, folder: Path) -> None:
        """Writes experience that outlives updates into a folder, beside a checkpoint, where a trainer keeps any.

        Args:
            folder: of the behavior.

        Raises:
            WriteFailed: it cannot be written; what was there before is untouched.
        """
        del folder  # most trainers keep none

    def load_experience(self, folder: Path) -> str:
        """Goes on with the experience that `save_experience` wrote, if it can be read; after `load_state_dict`.

        Args:
            folder: of the behavior.

        Returns:
            Why it is not what it was when the state was saved; empty where it is, or where none outlives an update.
        """
        del folder
        return ""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns everything that training depends on: tensors, numbers, texts, lists and dicts."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state.

        Raises:
            UserError: it does not fit this trainer.
        """

    @abstractmethod
    def load_initial_state(self, state: Mapping[str, Any]) -> None:
        """Starts with the networks, optimizer and statistics of another run's saved state; steps count from 0.

        Raises:
            UserError: it does not fit this trainer.
        """
