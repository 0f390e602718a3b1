"""The trainers' side of a rank other than 0, which has trainers, but no parts, files or policies to publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rollcast.policies import PolicyDescription
from torch import Tensor

from learner.link.channel import Link
from learner.link.to_trainers import Declared
from learner.link.turns import Follow
from learner.shared.observe.stats import StatsReporter
from learner.shared.policies import StoredPolicy
from learner.shared.settings.options import RunOptions
from learner.training.export.describe import Progress, describe
from learner.training.lockstep.round_queue import RoundQueue
from learner.training.networks.policy import PolicyNetwork
from learner.training.optimizers.reduce import Reduce
from learner.training.run.context import RunContext
from learner.training.run.run import seed_of
from learner.training.trainers import registry
from learner.training.trainers.base import Trainer, TrainerContext
from learner.training.trainers.follower import Follower
from learner.training.trainers.loop import ordinary_queue
from learner.training.trainers.outcome_report import ExperienceQueue, OutcomeReport


class UnpublishedPolicy:
    """A publisher of versions that rank 0 publishes.

    Args:
        template: Description of the network without the numbers of a version.
    """

    def __init__(self, template: PolicyDescription) -> None:
        self._newest = template

    def publish(self, state: Mapping[str, Tensor], progress: Progress, *, keep: bool = False) -> PolicyDescription:
        """Returns the header of the version."""
        del state, keep
        self._newest = replace(self._newest, version=progress.version)
        return self._newest

    def keep(self) -> None:
        """Does nothing."""

    @property
    def newest(self) -> StoredPolicy:
        """Raises an error, because only rank 0 has policies."""
        raise LookupError("only rank 0 has policies")


class FollowingSide:
    """The trainers' side of a rank other than 0.

    Args:
        options: The run file.
        link: Link to the service.
        told: What rank 0 has read from the run folder.
        run_id: Name of the run.
        reduce: Combines numbers over the ranks.

    Raises:
        UserError: The device cannot be used.
    """

    def __init__(self, options: RunOptions, link: Link, told: Follow, run_id: str, reduce: Reduce) -> None:
        self._context = context = RunContext(
            options, link, run_id=run_id, generation=told.generation, seed=told.seed, reduce=reduce
        )
        make_queue = ordinary_queue if context.service.lockstep is None else _round_queue
        self._follower = Follower(link, self._build, make_queue, _release)

    def run(self) -> None:
        """Follows rank 0 until an error; the process ends with its connection to the service."""
        self._follower.run()

    def _build(self, behavior: Declared, queue: ExperienceQueue) -> Trainer:
        context = self._context

        def open_publisher(network: PolicyNetwork) -> UnpublishedPolicy:
            return UnpublishedPolicy(
                describe(
                    network,
                    behavior_index=behavior.index,
                    generation=context.generation,
                    memory_stride=behavior.memory_stride,
                )
            )

        return registry.build(
            TrainerContext(
                behavior=behavior,
                queue=queue,
                stats=StatsReporter(behavior.name),
                open_publisher=open_publisher,
                generation=context.generation,
                seed=seed_of(context, behavior),
                device=context.device,
                service=context.service,
                reduce=context.reduce,
                metrics=context.meters.behavior(behavior.name),
            )
        )


def _round_queue(behavior: Declared, outcomes: OutcomeReport) -> ExperienceQueue:
    return RoundQueue(behavior, outcomes)


def _release(queue: ExperienceQueue, players: frozenset[str]) -> None:
    if isinstance(queue, RoundQueue):
        queue.release(players)
