"""Tests evaluations in the loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from rollcast.chunks import Chunk
from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2
from structlog.testing import capture_logs

from actor_client.envs.scalar import ScalarBatch
from actor_client.rollout.evaluation import Quota
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy, pieces


def evaluate(episodes: int = 0, **part: object) -> policy_pb2.Assignment:
    """Requests an evaluation."""
    entry = {"behavior": "Toy", "team": 1, "role": AssignmentRole.LEARN, "purpose": Purpose.EVALUATE, **part}
    return policy_pb2.Assignment(id=1, episodes=episodes, behaviors=[policy_pb2.BehaviorAssignment(**entry)])  # type: ignore[arg-type]


class Scenario:
    """A loop over toys whose assignment changes during the test.

    Args:
        environments: The first batch.
        others: What a remake takes.
        script: Called before each step and in each wait.
        steps: After so many the loop ends.
    """

    def __init__(
        self,
        *environments: toys.Toy,
        script: Callable[[Scenario], None],
        steps: int = 200,
        others: tuple[toys.Toy, ...] = (),
        length: int = 100,
    ) -> None:
        waiting = [list(environments), list(others)]
        self.environments = environments
        batch = ScalarBatch(waiting.pop(0), "Toy")
        self.link = KeepingLink(batch.spec, time_horizon=length)
        self.policy = RulePolicy(batch.spec)
        self.link.policies.append(self.policy)
        self.session = KeepingSession()
        self._script = script
        self.link.allowed = self.link.acts = self._look
        self.session.on_wait = lambda: script(self)
        limits = LoopLimits(max_steps=steps, remake_pause_seconds=0.0)
        self.loop = RolloutLoop(
            lambda: ScalarBatch(waiting.pop(0), "Toy"), batch, self.session, lambda: self.link, limits=limits
        )

    def _look(self) -> bool:
        self._script(self)
        return True

    @property
    def steps(self) -> int:
        """Returns the steps of all environments."""
        return self.loop.stats.steps

    def evaluations(self) -> list[Chunk]:
        """Returns the chunks of evaluations."""
        return [chunk for chunk in self.link.chunks if "episode/purpose" in chunk.columns]

    def records(self, name: str) -> list[float]:
        """Returns a column of the records of evaluations."""
        return [value for chunk in self.evaluations() for value in chunk.columns[f"episode/{name}"].tolist()]


def once(scenario: Scenario, step: int, assignment: policy_pb2.Assignment) -> None:
    """Returns a hook that sets an assignment from a step on."""
    if scenario.session.assignment is None and scenario.steps >= step:
        scenario.session.assignment = assignment


def stop_in_wait(scenario: Scenario, waits: int = 3) -> None:
    """Ends the loop once it waits for the next assignment."""
    scenario.session.stopping = scenario.session.waits >= waits


def test_an_evaluation_sends_whole_episodes_and_no_step() -> None:
    """An evaluation cuts and sends open segments, resets environments, sends records, and then waits."""

    def script(scenario: Scenario) -> None:
        once(scenario, 7, evaluate(3))
        stop_in_wait(scenario)

    scenario = Scenario(toys.Toy(length=5), script=script)
    scenario.loop.run()

    assert [len(piece) for piece in pieces(scenario.link.chunks)] == [5, 3]
    assert scenario.environments[0].steps == 8 + 3 * 5  # the loop looks at its assignment one step later
    assert [chunk.segments for chunk in scenario.evaluations()] == [0]
    assert (scenario.records("length"), scenario.records("return")) == ([5, 5, 5], [5.0, 5.0, 5.0])
    assert set(scenario.records("purpose")) == {Purpose.EVALUATE}
    assert set(scenario.records("assignment")) == {1}
    books = scenario.link.books.view()
    assert (books.produced, books.unacked, books.balanced) == (8, 8, True)


def test_the_first_episodes_to_begin_count_and_not_the_first_to_end() -> None:
    """The first episodes to start count: with one short and two long environments, one of each."""
    environments = (toys.Toy(length=2), toys.Toy(length=20), toys.Toy(length=20))

    def script(scenario: Scenario) -> None:
        once(scenario, 0, evaluate(3))
        stop_in_wait(scenario)

    scenario = Scenario(*environments, script=script)
    scenario.loop.run()
    assert sorted(scenario.records("length")) == [2, 20, 20]


def test_one_policy_plays_the_evaluation_while_newer_ones_come() -> None:
    """A version that arrives during an evaluation acts only in training afterwards."""

    def script(scenario: Scenario) -> None:
        once(scenario, 0, evaluate(2))
        if scenario.steps == 4:
            scenario.link.policies.append(dataclasses.replace(scenario.policy, version=1))
        if scenario.session.waits:
            scenario.session.assignment = policy_pb2.Assignment(id=2)

    scenario = Scenario(toys.Toy(length=5), script=script, steps=30)
    scenario.loop.run()
    assert (scenario.records("first_version"), scenario.records("last_version")) == ([0, 0], [0, 0])
    assert {version for piece in pieces(scenario.link.chunks)[1:] for version in piece.versions} == {1}


def test_a_pinned_version_acts_in_its_mode() -> None:
    """An evaluation waits for its pinned version, uses the requested mode and records the version."""
    pinned: list[RulePolicy] = []

    def script(scenario: Scenario) -> None:
        once(scenario, 3, evaluate(1, version=40, deterministic=True))
        if scenario.session.waits == 2 and not pinned:
            pinned.append(dataclasses.replace(scenario.policy, version=40, modes=0))
            scenario.link.held[40] = pinned[0]
        stop_in_wait(scenario, 5)

    scenario = Scenario(toys.Toy(length=5), script=script)
    scenario.loop.run()
    assert (scenario.records("first_version"), scenario.records("last_version")) == ([40], [40])
    assert (pinned[0].modes, scenario.policy.modes) == (1, 0)


def test_training_goes_on_with_new_episodes_and_other_seeds() -> None:
    """After an evaluation, training starts new episodes with other seeds."""

    def script(scenario: Scenario) -> None:
        once(scenario, 7, evaluate(1))
        if scenario.session.waits:
            scenario.session.assignment = policy_pb2.Assignment(id=2)

    scenario = Scenario(toys.Toy(length=5), script=script, steps=8 + 5 + 10)
    scenario.loop.run()
    seeds = [seed for seed in scenario.environments[0].seeds if seed is not None]
    assert len(seeds) == len(set(seeds)) == 3
    trained = [chunk for chunk in scenario.link.chunks if chunk.episodes and chunk not in scenario.evaluations()]
    assert [length for chunk in trained for length in chunk.columns["episode/length"].tolist()] == [5, 5, 5]
    assert [piece.first_step for piece in pieces(scenario.link.chunks)] == [0, 0, 0, 0]


def test_two_evaluations_begin_with_the_same_seeds() -> None:
    """Two evaluations start with equal seeds."""

    def script(scenario: Scenario) -> None:
        once(scenario, 0, evaluate(1))
        if scenario.session.waits == 1 and scenario.session.assignment is not None:
            again = evaluate(1)
            again.id = 2
            scenario.session.assignment = again
        stop_in_wait(scenario, 4)

    scenario = Scenario(toys.Toy(length=5), script=script)
    scenario.loop.run()
    first, *others = [seed for seed in scenario.environments[0].seeds if seed is not None]
    assert len(others) == 2
    assert others[0] == others[1] != first
    assert scenario.records("assignment") == [1, 2]


def test_an_idle_behavior_waits_and_goes_on_where_it_was() -> None:
    """An idle behavior sends its open segments, steps nothing, and then continues its episodes."""

    def script(scenario: Scenario) -> None:
        once(scenario, 3, evaluate(role=AssignmentRole.IDLE))
        if scenario.session.waits == 4:
            scenario.session.assignment = policy_pb2.Assignment(id=2)

    scenario = Scenario(toys.Toy(length=10), script=script, steps=10)
    scenario.loop.run()
    assert [len(piece) for piece in pieces(scenario.link.chunks)] == [4, 6]
    assert [piece.first_step for piece in pieces(scenario.link.chunks)] == [0, 4]


def test_a_failing_environment_costs_its_episode_and_not_the_evaluation() -> None:
    """After a failure, ended episodes count and running ones are replayed."""

    def script(scenario: Scenario) -> None:
        once(scenario, 0, evaluate(3))
        stop_in_wait(scenario, 5)

    scenario = Scenario(toys.Toy(length=5, step_fails=(9,)), others=(toys.Toy(length=5),), script=script)
    with capture_logs():
        scenario.loop.run()
    assert scenario.records("length") == [5, 5, 5]


def test_an_episode_without_a_finite_return_is_played_again() -> None:
    """An episode with a non-finite return is replayed."""

    def script(scenario: Scenario) -> None:
        once(scenario, 0, evaluate(2))
        stop_in_wait(scenario, 3)

    scenario = Scenario(toys.Rewarding(1.0, np.nan, *[1.0] * 20, length=5), script=script)
    with capture_logs() as logs:
        scenario.loop.run()
    assert len(scenario.records("return")) == 2
    assert "episode_not_finite" in {line["event"] for line in logs}


def test_another_start_of_the_learner_begins_the_evaluation_anew() -> None:
    """Records of two generations never make one evaluation."""

    def script(scenario: Scenario) -> None:
        once(scenario, 0, evaluate(2))
        if scenario.steps == 7:
            scenario.link.policies.append(dataclasses.replace(scenario.policy, generation=2))
        stop_in_wait(scenario, 3)

    scenario = Scenario(toys.Toy(length=5), script=script)
    scenario.loop.run()
    assert [chunk.generation for chunk in scenario.evaluations() for _ in range(chunk.episodes)].count(2) == 2


def test_a_quota_without_a_limit_is_never_done() -> None:
    """Without a quota, every episode is reported and the evaluation never ends."""
    quota = Quota(0)
    for _ in range(1000):
        assert quota.begin()
        quota.end()
    assert not quota.is_done
