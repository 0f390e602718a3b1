"""Tests the loop that steps simulators; tests of board games and PettingZoo play with it."""

from __future__ import annotations

import pytest
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.connection.link import LearnerLink
from actor_client.envs.errors import EnvironmentFailed, EnvironmentFailedTooOften
from actor_client.policy.runner import Policy
from actor_client.rollout.agents.stepping import AgentReport, SteppingLoop
from tests.actor_client.scripted import ScriptedLearner

DEAD_SECONDS = 300.0


class Failing:
    """A simulator that cannot be stepped."""

    worker = 0
    is_running = False
    reset_due = False
    is_ready = True
    behaviors: list[tuple[BehaviorSpec, int, int]] = []

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Takes an assignment."""

    def advance(self) -> list[AgentReport]:
        """Fails."""
        raise EnvironmentFailed(0, "the server is gone")


def test_a_simulator_that_nobody_makes_again_ends_the_actor() -> None:
    """A failure is the error of the command, with the exit code of environments, and not a bug."""
    with ScriptedLearner() as learner:
        link = LearnerLink(learner.address, actor_name="loop", load=Policy.load, client_version="test")
        link.start()
        try:
            loop = SteppingLoop(link, link.open(DEAD_SECONDS).assignment, [Failing()])
            with pytest.raises(EnvironmentFailedTooOften, match=r"1 failures in a row .* the server is gone"):
                loop.run()
        finally:
            link.close()
