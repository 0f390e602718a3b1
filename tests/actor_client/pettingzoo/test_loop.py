"""Tests environments that act for a scripted learner: what is recorded, resets, parameters and failures."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from rollcast.enums import Purpose, SegmentEnd
from rollcast.v1 import policy_pb2

from actor_client.envs.errors import EnvironmentFailedTooOften
from actor_client.envs.seeds import environment_seeds
from tests.actor_client.acting import Acting, column
from tests.actor_client.pettingzoo import toys
from tests.actor_client.pettingzoo.harness import acting, segments
from tests.actor_client.scripted import ScriptedLearner

EPISODE_STEPS = 7  # of `FIELD`: four of a, two of b, one of c
TERMINATED, TRUNCATED = int(SegmentEnd.TERMINATED), int(SegmentEnd.TRUNCATED)


@pytest.fixture(autouse=True)
def _forget_fields() -> None:
    """Forgets the environments of other tests."""
    toys.Field.made.clear()


def test_each_agent_is_recorded_from_its_first_action_to_its_end() -> None:
    """Segments have the rewards after each action, and end as the agent's episode did."""
    with ScriptedLearner() as learner, acting(learner, toys.Field, num_envs=2) as acts:
        acts.publish()
        learner.wait_until(lambda: acts.steps() >= 4 * EPISODE_STEPS)
    found = {(each.agent, each.end, tuple(each.rewards)) for each in segments(learner)}
    assert {
        (0, TRUNCATED, (1.0, 2.0, 3.0, 4.0)),
        (1, TERMINATED, (10.0, 20.0)),
        (2, TERMINATED, (400.0,)),
    } <= found
    assert {each.env for each in segments(learner)} == {0, 1}
    assert set(column(learner, "episode/return")) == {10.0, 30.0, 400.0}


def test_actions_reach_their_agents_and_masks_are_kept() -> None:
    """Each agent gets the action of its own policy; a forbidden choice is never taken."""
    duels: list[Any] = []

    def make() -> Any:
        duels.append(toys.duel(is_wrapped=False))
        return duels[-1]

    with ScriptedLearner() as learner, acting(learner, make, behaviors="x=X o=O", num_envs=2) as acts:
        acts.publish("X", logits=(0.0, 50.0, 49.0))
        acts.publish("O", logits=(50.0, 49.0, 0.0))
        learner.wait_until(lambda: acts.steps() >= 30)
    # x moves in turns 0 and 2, whose masks forbid 0 and 2; o moves in turn 1, whose mask forbids 1.
    for duel in duels:
        assert set(duel.actions) <= {("x", 1), ("x", 2), ("o", 0), ("o", 2)}
        assert ("x", 1) in duel.actions
        assert ("o", 0) in duel.actions


def test_groups_and_shared_rewards_are_recorded() -> None:
    """A group's number and rewards are in the segments, and its agents have none of their own."""
    with ScriptedLearner() as learner, acting(learner, toys.Field, groups="all", share="sum") as acts:
        acts.publish()
        learner.wait_until(lambda: acts.steps() >= 3 * EPISODE_STEPS)
        assert acts.declared().grouped
    of_b = [each for each in segments(learner) if each.agent == 1 and each.end == TERMINATED]
    assert of_b[0].group_rewards == [11.0, 22.0]
    assert {each.group for each in segments(learner)} == {1}
    assert not any(column(learner, "reward"))


def test_seeds_differ_between_environments_and_lives() -> None:
    """Each environment begins with a seed of its own, continues without, and gets another after a failure."""
    with ScriptedLearner() as learner, acting(learner, lambda: toys.Field(fails_at=6), num_envs=2) as acts:
        acts.publish()
        learner.wait_until(lambda: len(toys.Field.made) >= 4 and all(field.resets for field in toys.Field.made[:4]))
        run_seed = acts.link.run_seed
    first = environment_seeds(run_seed, 0, 2)
    again = environment_seeds(run_seed, 0, 2, life=1)
    assert [field.resets[0][0] for field in toys.Field.made[:2]] == first
    assert {field.resets[0][0] for field in toys.Field.made[2:4]} == set(again)
    assert toys.Field.made[0].resets[1] == (None, None)


def test_an_environment_that_raises_is_made_again() -> None:
    """Its open rows are discarded, it is closed and made again, and the other one continues."""
    makes = iter([toys.Field(fails_at=6), toys.Field()])
    with (
        ScriptedLearner() as learner,
        acting(learner, lambda: next(makes, None) or toys.Field(), num_envs=2) as acts,
    ):
        acts.publish()
        learner.wait_until(lambda: len(toys.Field.made) == 3 and len(toys.Field.made[2].actions) > 20)
        counts = acts.link.counts
        assert counts.env_failures == 1
        assert "environment 0 failed: RuntimeError: the field is on fire (tests/actor_client" in counts.env_error
        assert acts.link.books()["Run"].discarded["env_error"] == counts.env_discarded_steps == 2
        assert toys.Field.made[0].closed == 1
    assert acts.failure is None


def test_too_many_failures_end_the_actor() -> None:
    """An environment that fails in a row ends the loop with the newest failure."""
    with ScriptedLearner() as learner, acting(learner, lambda: toys.Field(fails_at=1), max_env_failures=2) as acts:
        acts.publish()
        learner.wait_until(lambda: acts.failure is not None)
    assert isinstance(acts.failure, EnvironmentFailedTooOften)
    assert "2 failures in a row" in acts.failure.message


def test_parameters_reach_the_next_episode() -> None:
    """Environment parameters are options of `reset`, and episodes have their revision."""
    with ScriptedLearner() as learner, acting(learner, toys.Field) as acts:
        acts.publish()
        learner.wait_until(lambda: acts.steps() >= EPISODE_STEPS)
        assignment = policy_pb2.Assignment(id=1, settings_revision=3)
        assignment.environment_parameters["height"].constant = 2.5
        learner.assign(assignment)
        learner.wait_until(lambda: 3 in column(learner, "episode/settings_revision"))
    options = [given for _, given in toys.Field.made[0].resets]
    assert options[0] is None
    assert options[-1] == {"parameters": {"height": 2.5}}


def test_an_evaluation_resets_the_environments() -> None:
    """An evaluation plays whole episodes of its own with fixed seeds, without rows; training continues after it."""
    with ScriptedLearner() as learner, acting(learner, toys.Field) as acts:
        acts.publish()
        learner.wait_until(lambda: acts.steps() >= EPISODE_STEPS)
        for number in (1, 3):
            part = policy_pb2.BehaviorAssignment(
                behavior="Run", role=policy_pb2.ASSIGNMENT_ROLE_LEARN, purpose=Purpose.EVALUATE
            )
            learner.assign(policy_pb2.Assignment(id=number, episodes=3, behaviors=[part]))
            learner.wait_until(partial(_are_played, learner, number, 3))
            before = acts.steps()
            learner.assign(policy_pb2.Assignment(id=number + 1))
            learner.wait_until(partial(_has_stepped, acts, before + EPISODE_STEPS))
    seeds = [seed for seed, _ in toys.Field.made[0].resets if seed is not None]
    assert len(seeds) == 5
    assert seeds[1] == seeds[3]
    assert len(set(seeds)) == 4
    assert Purpose.EVALUATE in column(learner, "episode/purpose")


def _are_played(learner: ScriptedLearner, assignment: int, episodes: int) -> bool:
    return column(learner, "episode/assignment").count(assignment) == episodes


def _has_stepped(acts: Acting, steps: int) -> bool:
    return acts.steps() > steps


def test_an_agent_that_joins_without_a_pattern_ends_the_actor() -> None:
    """A name that no pattern covers is an error of the command line: making the environment again would not help."""

    class Surprising(toys.Field):
        def reset(self, *args: Any, **kwargs: Any) -> Any:
            """Begins an episode of which an agent is not among the possible ones."""
            self.possible_agents = ["a", "b"]
            return super().reset(*args, **kwargs)

    def make() -> toys.Field:
        field = Surprising()
        field.possible_agents = ["a", "b"]
        return field

    with ScriptedLearner() as learner, acting(learner, make, behaviors="a=Run b=Run") as acts:
        acts.publish()
        learner.wait_until(lambda: acts.failure is not None)
    assert "no --behavior matches the agent c" in str(acts.failure)
