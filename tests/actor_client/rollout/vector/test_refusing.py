"""Tests policies that cannot act on the observations: another version acts, or environments wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray
from rollcast.enums import Purpose
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.counts import RolloutCounts
from actor_client.envs.scalar import ScalarBatch
from actor_client.heartbeat import Heartbeat
from actor_client.policy.actions import Actions, MemoryForm, PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy, pieces
from tests.actor_client.rollout.vector.test_lockstep import asked


class Failing(RulePolicy):
    """Acts so many times, and then cannot."""

    left = 0

    def act(
        self,
        observations: Sequence[NDArray[Any]],
        masks: NDArray[np.uint8] | None,
        noise: Noise,
        memory: NDArray[np.float32] | None = None,
    ) -> Actions:
        """Counts."""
        if not self.left:
            raise PolicyUnusable(f"version {self.version} has diverged")
        self.left -= 1
        return super().act(observations, masks, noise, memory)


def failing(spec: BehaviorSpec, version: int, *, after: int, memory: int = 0) -> Failing:
    """Returns such a policy."""
    policy = Failing(spec, version, memory=MemoryForm(memory, 2 if memory else 0))
    policy.left = after
    return policy


def loop_of(
    environment: gymnasium.Env[Any, Any], steps: int, count: int = 1, **options: Any
) -> tuple[RolloutLoop, KeepingLink, KeepingSession]:
    """Returns a loop over this many environments."""
    batch = ScalarBatch([environment] * count, "Toy")
    link, session = KeepingLink(batch.spec, **options), KeepingSession()
    return RolloutLoop(lambda: batch, batch, session, lambda: link, limits=LoopLimits(max_steps=steps)), link, session


@pytest.mark.parametrize("memory", [0, 4])
def test_the_version_before_goes_on(memory: int) -> None:
    """The previous version takes over, and no step is lost or taken twice."""
    environment = toys.Toy(length=10)
    form = MemoryForm(memory, 2 if memory else 0)
    loop, link, _ = loop_of(environment, 6, memory=form)
    link.instead = RulePolicy(link.spec, version=4, memory=form)
    link.policies.append(failing(link.spec, 5, after=2, memory=memory))
    assert loop.run().steps == environment.steps == 6
    assert link.refused == ["version 5 has diverged"]
    assert [version for piece in pieces(link.chunks) for version in piece.versions] == [5, 5, 4, 4, 4, 4]
    assert link.books.view().balanced


def test_without_another_version_environments_wait_for_a_newer_one() -> None:
    """Without another version, the environments wait and their episodes continue later."""
    environment = toys.Toy(length=10)
    loop, link, session = loop_of(environment, 5)
    link.policies.append(failing(link.spec, 5, after=2))

    def arrive() -> None:
        assert environment.steps == 2
        if session.waits == 3:
            link.policies.append(RulePolicy(link.spec, version=6))

    session.on_wait = arrive
    assert loop.run().steps == 5
    assert [version for piece in pieces(link.chunks) for version in piece.versions] == [5, 5, 6, 6, 6]
    assert environment.resets == 1


@pytest.mark.parametrize("evaluates", [False, True])
def test_in_lock_step_and_evaluations_no_other_version_may_act(evaluates: bool) -> None:
    """The actor ends, because a round and an evaluation are of one version."""
    environment = toys.Toy(length=10)
    loop, link, session = loop_of(environment, 6)
    link.instead = RulePolicy(link.spec, version=4)
    link.policies.append(failing(link.spec, 5, after=2))
    session.assignment = asked(link.spec, 1, 5)
    if evaluates:
        asks = policy_pb2.BehaviorAssignment(behavior=link.spec.name, team=1, role=1, purpose=Purpose.EVALUATE)  # type: ignore[arg-type]
        session.assignment = policy_pb2.Assignment(id=1, behaviors=[asks])
    with pytest.raises(PolicyUnusable, match="version 5 has diverged"):
        loop.run()
    assert (link.refused, environment.steps, environment.closed) == ([], 2, True)


class Beats(Heartbeat):
    """Counts beats."""

    def __init__(self) -> None:
        super().__init__()
        self.beats = 0

    def beat(self) -> None:
        """Counts one."""
        self.beats += 1


def test_steps_and_episodes_are_counted_as_they_happen() -> None:
    """Every step counts and beats, one in sixteen is timed, and episodes count by their end, failures as such."""
    waiting, counts, beats = [toys.Toy(length=4, step_fails=(20,)), toys.Toy(length=4)], RolloutCounts(), Beats()

    def make() -> ScalarBatch:
        return ScalarBatch([waiting.pop(0)], "Toy")

    batch = make()
    link = KeepingLink(batch.spec)
    link.policies.append(RulePolicy(batch.spec))
    limits = LoopLimits(max_steps=33, remake_pause_seconds=0.0)
    RolloutLoop(make, batch, KeepingSession(), lambda: link, limits=limits, counts=counts, heartbeat=beats).run()
    assert counts.env_steps == beats.beats == link.books.view().produced == 33
    assert counts.episodes == {"terminated": 0, "truncated": 8, "env_error": 1}
    assert counts.env_failures == 1
    assert link.books.view().balanced
    for histogram in (counts.act_seconds, counts.env_step_seconds, counts.record_seconds):
        assert sum(histogram.counts) == 3
        assert histogram.total > 0
