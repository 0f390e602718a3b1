"""Ranks of trainers as threads of one process, connected as the service connects processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rollcast.columns import column_forms
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.link.channel import Link
from learner.link.split import Splitter
from learner.link.to_trainers import Declared, Experience
from learner.link.turns import Turn
from learner.start.rank_processes import RankRouter
from learner.training.optimizers.ranks import RankGroup
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.base import Trainer
from learner.training.trainers.conductor import Conductor
from learner.training.trainers.follower import Follower
from learner.training.trainers.loop import TrainerLoop
from learner.training.trainers.outcome_report import ExperienceQueue
from learner.training.trainers.parts import RunPart
from learner.training.trainers.registry import build
from tests.learner.training.trainers.in_process import Bench

WAIT_SECONDS = 300.0


class Meeting:
    """Where the threads exchange what processes exchange with torch.distributed."""

    def __init__(self, ranks: int) -> None:
        self.slots: list[Any] = [None] * ranks
        self.barrier = threading.Barrier(ranks)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """Returns the values of all ranks."""
        self.slots[rank] = value
        self.barrier.wait(WAIT_SECONDS)
        found = list(self.slots)
        self.barrier.wait(WAIT_SECONDS)
        return found


class ThreadRank(RankGroup):
    """`RankGroup` of a thread."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.rank, self.ranks = rank, len(meeting.slots)
        self.has_rows, self.wait_seconds = True, 0.0
        self._meeting = meeting

    def gather(self, values: Tensor) -> Tensor:
        """Returns the values of each rank."""
        return torch.stack(self._meeting.exchange(self.rank, values.clone()))

    def broadcast(self, content: bytes) -> bytes:
        """Returns the content that rank 0 has."""
        found: bytes = self._meeting.exchange(self.rank, content)[0]
        return found

    def _sum(self, values: Tensor) -> None:
        values.copy_(self.gather(values).sum(0))


class _Counted(Follower):
    """A follower that tells the number of the turn that it has ended last."""

    played = 0
    told = threading.Condition()

    def play(self, turn: Turn) -> None:
        """Does what rank 0 does, and counts it."""
        super().play(turn)
        with self.told:
            self.played = turn.number
            self.told.notify_all()


class ThreadRanks:
    """A service, rank 0 with its loop, and its followers.

    Args:
        bench: The service; its trainers are those of the ranks.
        ranks: Number of ranks.
        parts: Parts of rank 0.

    Attributes:
        trainers: The trainer of each rank.
        errors: What ended a thread.
    """

    def __init__(self, bench: Bench, ranks: int, parts: Sequence[RunPart] = ()) -> None:
        bench.is_looped = True
        self._bench = bench
        self._meeting = Meeting(ranks)
        self.trainers: dict[int, ActorCriticTrainer] = {}
        self.errors: list[BaseException] = []
        router = RankRouter(bench.link.to_trainers, ranks)
        self._sent = 0

        def follow(turn: Turn) -> None:
            self._sent = turn.number
            router.follow(turn)

        bench.link.to_front.divert(Turn, follow)
        links = [Link() for _ in range(ranks)]
        for rank, link in enumerate(links):
            link.to_trainers = router.channels[rank]
            link.to_trainers._transport = _joining(rank, ranks)
        links[0].to_front = bench.link.to_front
        self.loop = TrainerLoop(links[0], self._builder(0), parts, on_failure=self._fail)
        self._followers = [_Counted(links[rank], self._builder(rank), _queue, _release) for rank in range(1, ranks)]
        self._thread = threading.Thread(target=self.loop.run, daemon=True)
        for follower in self._followers:
            threading.Thread(target=self._run, args=(follower,), daemon=True).start()
        self._thread.start()
        router.start()

    def stop(self) -> None:
        """Ends the loop of rank 0, and waits until the others have done all that it did."""
        self.loop.stop()
        self._thread.join(WAIT_SECONDS)
        with _Counted.told:
            assert _Counted.told.wait_for(
                lambda: self.errors or all(follower.played >= self._sent for follower in self._followers), WAIT_SECONDS
            )

    def _fail(self, error: BaseException) -> None:
        with _Counted.told, self._bench.published.changed:
            self.errors.append(error)
            _Counted.told.notify_all()
            self._bench.published.changed.notify_all()

    def _run(self, follower: Follower) -> None:
        try:
            follower.run()
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self._fail(error)
            self._meeting.barrier.abort()

    def _builder(self, rank: int) -> Callable[[Declared, ExperienceQueue], Trainer]:
        def make(declared: Declared, queue: ExperienceQueue) -> Trainer:
            bench = self._bench
            others: dict[str, Any] = {}
            if rank:
                others = {"open_publisher": type(bench.published)().open}
            conductor = Conductor(None if rank else bench.link.to_front.send)
            trainer = build(
                bench.context(
                    behavior=declared,
                    queue=queue,
                    reduce=ThreadRank(self._meeting, rank),
                    conductor=conductor,
                    seed=1 if rank == 0 else 99,  # the state comes from rank 0
                    **others,
                )
            )
            assert isinstance(trainer, ActorCriticTrainer)
            self.trainers[rank] = trainer
            return trainer

        return make


def _joining(rank: int, ranks: int) -> Callable[[Any], Any]:
    splitter = Splitter(ranks)

    def join(message: Any) -> Any:
        if isinstance(message, Declared):
            splitter.note(message)
        return splitter.whole(message, rank) if isinstance(message, Experience) else message

    return join


def _queue(declared: Declared, outcomes: Any) -> ExperienceQueue:
    del declared
    return ExperienceQueue(outcomes)


def _release(queue: ExperienceQueue, players: frozenset[str]) -> None:
    raise AssertionError("there are no rounds here")


def with_roles(chunk: Chunk, spec: BehaviorSpec, memory_size: int = 0) -> Chunk:
    """Gives the columns of a chunk their roles."""
    forms = column_forms(spec, memory_size)
    chunk.roles = {name: forms[name].role for name in chunk.columns if name in forms}
    return chunk
