"""Tests lock-step rounds on the actor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.envs.factory import make_env_batch
from actor_client.envs.scalar import ScalarBatch
from actor_client.policy.runner import Policy
from actor_client.rollout.vector.loop import LockstepRounds, LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.policy import models
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy, pieces

QUOTA = 6


def asked(
    spec: BehaviorSpec, number: int, version: int = 0, *, checkpoint: int = 0, resets: bool = False, quota: int = QUOTA
) -> policy_pb2.Assignment:
    """Returns an assignment as the learner sends for a round."""
    return policy_pb2.Assignment(
        id=number + 1,
        behaviors=[
            policy_pb2.BehaviorAssignment(
                behavior=spec.name, team=1, role=policy_pb2.ASSIGNMENT_ROLE_LEARN, lockstep_version=version
            )
        ],
        reset=policy_pb2.RESET_MODE_NOW if resets else policy_pb2.RESET_MODE_NONE,
        lockstep_quota_steps=quota,
        lockstep_round=number,
        lockstep_checkpoint=checkpoint,
    )


class Played:
    """A loop over toys; each wait takes the next event of the test."""

    def __init__(self, *environments: toys.Toy, **options: Any) -> None:
        waiting = list(environments)
        self.environments = environments

        def make() -> ScalarBatch:
            return ScalarBatch([waiting.pop(0)], "Toy")

        batch = make()
        self.link = KeepingLink(batch.spec, **options)
        self.session = KeepingSession()
        limits = LoopLimits(remake_pause_seconds=0.0)
        self._loop = RolloutLoop(make, batch, self.session, lambda: self.link, limits=limits)
        self.events: list[Callable[[], None]] = []
        self.session.on_wait = self._next

    def _next(self) -> None:
        if self.events:
            self.events.pop(0)()
        else:
            self.session.stopping = True

    def policy(self, version: int, generation: int = 1) -> None:
        """Publishes a version."""
        self.link.policies.append(RulePolicy(self.link.spec, version=version, generation=generation))

    def ask(self, number: int, version: int = 0, **options: Any) -> None:
        """Requests a round."""
        self.session.assignment = asked(self.link.spec, number, version, **options)

    def run(self) -> None:
        """Plays all events."""
        self._loop.run()

    @property
    def rounds(self) -> list[tuple[int, int]]:
        """Returns the number of rows before each end of a round, with the round's number."""
        found, rows = [], 0
        for chunk in self.link.chunks:
            rows += chunk.rows
            if chunk.lockstep_round:
                assert (chunk.rows, chunk.segments) == (0, 0)
                found.append((chunk.lockstep_round, rows))
                rows = 0
        return found


def test_a_round_is_the_quota_and_no_step_more() -> None:
    """The actor takes exactly its quota of steps, closes its segments, reports the end and waits."""
    played = Played(toys.Toy(length=4))
    played.policy(0)
    played.ask(1)
    played.run()

    assert played.environments[0].steps == QUOTA
    assert played.rounds == [(1, QUOTA)]
    assert [(len(piece), piece.end) for piece in pieces(played.link.chunks)] == [
        (4, SegmentEnd.TRUNCATED),
        (2, SegmentEnd.CUT),
    ]
    assert played.link.books.view().balanced


def test_it_waits_for_round_and_version() -> None:
    """The actor waits until it has quota, round and version."""
    played = Played(toys.Toy(length=100))
    played.policy(0)
    played.ask(0)
    steps: list[int] = []

    def then(*calls: Callable[[], None]) -> Callable[[], None]:
        def event() -> None:
            steps.append(played.environments[0].steps)
            for call in calls:
                call()

        return event

    played.events = [
        then(lambda: played.ask(1)),
        then(lambda: played.policy(1)),
        then(lambda: played.ask(2, version=1)),
        then(lambda: played.ask(3, version=2)),
        then(lambda: played.policy(2)),
    ]
    played.run()

    assert steps == [0, QUOTA, QUOTA, 2 * QUOTA, 2 * QUOTA]
    assert played.rounds == [(1, QUOTA), (2, QUOTA), (3, QUOTA)]
    versions = [piece.versions for piece in pieces(played.link.chunks)]
    assert [set(each) for each in versions] == [{0}, {1}, {2}]


def test_segments_are_cut_between_rounds_and_episodes_go_on() -> None:
    """Without a reset, an episode continues in the next round, in a new segment."""
    played = Played(toys.Toy(length=100), time_horizon=4)
    played.policy(0)
    played.ask(1)
    played.events = [lambda: played.ask(2)]
    played.run()

    assert [(piece.episode, piece.first_step, len(piece)) for piece in pieces(played.link.chunks)] == [
        (1, 0, 4),
        (1, 4, 2),
        (1, 6, 4),
        (1, 10, 2),
    ]


def test_a_checkpoint_decides_the_seeds() -> None:
    """A round with a reset starts environments with seeds that follow from the checkpoint alone."""
    played = Played(toys.Toy(length=100), time_horizon=100)
    played.policy(0)
    played.ask(1, resets=True)
    played.events = [
        lambda: played.ask(2),
        lambda: played.ask(3, checkpoint=2, resets=True),
    ]
    played.run()
    first_start, first, second = played.environments[0].seeds
    again = Played(toys.Toy(length=100))
    again.policy(0)
    again.ask(3, checkpoint=2, resets=True)
    again.run()

    assert len({first_start, first, second}) == 3
    assert again.environments[0].seeds == [first_start, second]
    assert [piece.episode for piece in pieces(played.link.chunks)] == [2, 2, 3]
    assert played.rounds == [(1, QUOTA), (2, QUOTA), (3, QUOTA)]
    assert played.link.books.view().discarded == {}


def test_environments_that_fail_cost_their_open_rows_and_the_round_goes_on() -> None:
    """Remade environments use the checkpoint's seeds and complete the quota."""
    played = Played(toys.Toy(length=100, step_fails=(2,)), toys.Toy(length=100))
    played.policy(0)
    played.ask(1, resets=True)
    played.run()

    failing, fresh = played.environments
    assert (failing.steps, fresh.steps) == (3, QUOTA - 2)
    assert played.rounds == [(1, QUOTA - 2)]
    assert dict(played.link.books.view().discarded) == {"env_error": 2}
    assert fresh.seeds[0] not in failing.seeds


def test_another_assignment_ends_the_round_that_is_played() -> None:
    """A new assignment, even of the same round, restarts the round."""
    environment = toys.Toy(length=100)
    played = Played(environment)
    played.policy(0)
    played.ask(5, resets=True)
    restarted = iter([4])

    def allowed() -> bool:
        if environment.steps == next(restarted, -1):
            played.policy(0, generation=2)
            played.ask(5, resets=True)
        return True

    played.link.allowed = allowed
    played.run()

    assert played.rounds[-1][0] == 5
    assert len(played.rounds) == 1
    assert {piece.versions for piece in pieces(played.link.chunks)} == {(0,) * QUOTA}


def test_it_is_off_where_no_quota_is_asked_for() -> None:
    """Without a quota the actor steps freely and reports no end of a round."""
    lockstep = LockstepRounds("Toy", 0)
    policy = RulePolicy(models.spec(branches=(2,)))
    lockstep.follow(policy_pb2.Assignment(id=1))
    assert not lockstep.is_on
    assert not lockstep.is_waiting
    assert lockstep.begin(policy) is None
    assert lockstep.stepped() == 0


def test_a_behavior_that_is_not_named_waits() -> None:
    """A round does not start without the version it names."""
    lockstep = LockstepRounds("Toy", 0)
    lockstep.follow(asked(models.spec(branches=(2,)), 1))
    assert lockstep.is_waiting
    assert lockstep.begin(RulePolicy(models.spec(branches=(2,)))) is None


@contextmanager
def acting(actor_index: int, envs: int, **options: Any) -> Iterator[tuple[KeepingSession, KeepingLink, RolloutLoop]]:
    """Returns a loop over real environments with a real policy."""
    batch = make_env_batch("MountainCar-v0", num_envs=envs, behavior="Tiny")
    behavior = models.spec(branches=(3,))
    link = KeepingLink(batch.spec, time_horizon=4)
    session = KeepingSession(actor_index=actor_index, run_seed=options.pop("run_seed", 3))
    model = models.graph(behavior)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2
    model.graph.initializer[1].CopyFrom(models.tensor("scores_weight", models.weights((2, 3))))
    link.policies.append(Policy.load(*models.described(model, behavior), batch.spec))
    yield session, link, RolloutLoop(lambda: batch, batch, session, lambda: link, **options)


def sent(actor_index: int, envs: int, rounds: list[int]) -> dict[tuple[int, int], list[float]]:
    """Returns observations and actions of each environment and round after a checkpoint."""
    with acting(actor_index, envs) as (session, link, loop):
        left = list(rounds)
        versions = [policy.version for policy in link.policies]

        def next_round() -> None:
            if left:
                number = left.pop(0)
                session.assignment = asked(link.spec, number, versions[0], checkpoint=number - 1, resets=True)
            else:
                session.stopping = True

        session.on_wait = next_round
        next_round()
        loop.run()
    found: dict[tuple[int, int], list[float]] = {}
    number = 0
    for piece in sorted(pieces(link.chunks), key=lambda piece: piece.episode):
        number = piece.episode
        rows = [*piece.rows["obs/obs"].ravel().tolist(), *piece.rows["discrete_action"][:, 0].tolist()]
        found.setdefault((number, piece.env), []).extend(rows)
    return found


def test_a_round_repeats_what_another_process_played() -> None:
    """A restarted actor repeats the rounds after a checkpoint; another index gives others."""
    long = sent(0, 3, [1, 2, 3])
    short = sent(0, 3, [3])
    last, only = max(number for number, _ in long), max(number for number, _ in short)

    for env in range(3):
        assert long[last, env] == short[only, env]
    other = sent(1, 3, [3])
    assert all(other[only, env] != short[only, env] for env in range(3))
    assert len({tuple(rows) for rows in short.values()}) == 3


def test_an_environment_plays_the_same_beside_others() -> None:
    """The first environment's steps do not depend on the number of environments, except for rounding."""
    alone, beside = sent(0, 1, [1]), sent(0, 4, [1])
    (key,) = alone
    np.testing.assert_allclose(alone[key], beside[key], rtol=1e-6)
