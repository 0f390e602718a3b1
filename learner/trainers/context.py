"""What a trainer gets from outside, and the two seams behind which publishing and saving lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from learner.curriculum.lessons import Lessons, no_lessons
from learner.ingest.behaviors import Behavior
from learner.ingest.ledger import Ledger
from learner.link.evaluation import EvaluationSink, NoEvaluation
from learner.networks.policy import PolicyNetwork
from learner.observe.metrics.behaviors import BehaviorMetrics
from learner.observe.metrics.learner import unobserved
from learner.observe.stats import StatsReporter
from learner.optimizers.reduce import Reduce, SingleLearner
from learner.settings.service import ServiceSettings

if TYPE_CHECKING:
    from learner.trainers.base import Trainer


@dataclass(frozen=True, slots=True)
class Progress:
    """What the header of a published policy says of its training.

    Attributes:
        version: completed updates.
        optimizer_steps: gradient steps.
        env_steps_trained: environment steps in completed updates.
    """

    version: int
    optimizer_steps: int
    env_steps_trained: int


class Publisher(Protocol):
    """Takes policies to the actors."""

    def attach(self, network: PolicyNetwork) -> None:
        """Prepares for this network, once and before the first `publish`: exports and verifies its graph."""

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
        publisher: where policies go.
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
    publisher: Publisher
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
