"""Tests evaluations of agents that step at different times."""

from __future__ import annotations

import dataclasses

from rollcast.enums import Purpose, SegmentEnd
from structlog.testing import capture_logs

from actor_client.rollout.agents.runner import AgentEvaluationRound
from actor_client.rollout.assignment import Task
from tests.actor_client.rollout.agents.driver import SPEC, Driver
from tests.actor_client.rollout.harness import RulePolicy


def evaluating(episodes: int, *, stale: tuple[int, ...] = ()) -> tuple[Driver, AgentEvaluationRound]:
    """Returns a driver whose agents are evaluated with version 4."""
    driver = Driver()
    task = Task(assignment=9, evaluates=True, episodes=episodes)
    evaluation = AgentEvaluationRound(task, SPEC, driver.link, stale=stale, clock=lambda: driver.now)
    evaluation.choose(RulePolicy(SPEC, version=4))
    driver.recorder = evaluation  # type: ignore[assignment]
    return driver, evaluation


def test_a_record_says_what_a_whole_episode_came_to() -> None:
    """A record has the rewards since the first answer, of agent and group; no steps are in the books."""
    driver, evaluation = evaluating(1)
    driver.ask({7: 0.0}, reward=100.0, revision=3)  # belongs to no action
    driver.ask({7: 1.0}, reward=2.0, group_reward=0.5)
    driver.end({7: 2.0}, reward=3.0, group_reward=0.5, cut_off=[7])
    assert evaluation.is_done
    named = {
        name: driver.column(f"episode/{name}")
        for name in ("return", "group_return", "length", "end", "first_version", "settings_revision", "assignment")
    }
    assert named == {
        "return": [5.0],
        "group_return": [1.0],
        "length": [2],
        "end": [SegmentEnd.TRUNCATED],
        "first_version": [4],
        "settings_revision": [3],
        "assignment": [9],
    }
    assert driver.column("episode/purpose") == [Purpose.EVALUATE]
    assert driver.link.books.view().produced == 0


def test_the_first_episodes_to_begin_count() -> None:
    """Episodes count in the order of their starts."""
    driver, evaluation = evaluating(2)
    driver.ask({1: 0.0, 2: 0.0})
    driver.ask({1: 0.0, 2: 0.0})
    driver.end({2: 0.0})
    for _ in range(3):
        driver.ask({1: 0.0, 3: 0.0})
        driver.end({3: 0.0})
    assert not evaluation.is_done
    driver.end({1: 0.0})
    assert evaluation.is_done
    assert sorted(driver.column("episode/length")) == [2, 5]


def test_episodes_that_began_before_the_reset_count_nowhere() -> None:
    """Episodes that started before the reset of their environment do not count."""
    driver, evaluation = evaluating(1, stale=(0,))
    driver.ask({1: 0.0})
    driver.end({1: 0.0})
    assert not driver.column("episode/return")
    evaluation.drop_env(0, "reset")
    driver.ask({2: 0.0})
    driver.end({2: 0.0})
    assert driver.column("episode/length") == [1]


def test_a_lost_environment_and_a_faulty_episode_are_played_again() -> None:
    """A lost environment and a faulty episode are replayed; agents of other environments are still answered."""
    driver, evaluation = evaluating(2)
    slots = driver.ask({5: 0.0}, env=1, act=False)
    driver.ask({1: 0.0}, env=0)
    evaluation.drop_env(0, "env_error")
    evaluation.act(slots, None)  # type: ignore[arg-type]
    with capture_logs() as logs:
        driver.end({5: 0.0}, env=1, faulty=True)
    assert [line["event"] for line in logs] == ["episode_not_finite"]
    for identity in (6, 7):
        driver.ask({identity: 0.0}, env=1)
        driver.end({identity: 0.0}, env=1)
    assert evaluation.is_done
    assert driver.column("episode/length") == [1, 1]


def test_records_go_out_in_time() -> None:
    """A record is sent after at most half a second."""
    driver, evaluation = evaluating(0)
    driver.ask({1: 0.0})
    driver.end({1: 0.0})
    assert not driver.link.chunks
    driver.now += 0.6
    evaluation.poll()
    assert [chunk.episodes for chunk in driver.link.chunks] == [1]


def test_another_start_of_the_learner_begins_it_anew() -> None:
    """After a restart of the learner the evaluation starts again, and unsent records are dropped."""
    driver, evaluation = evaluating(1)
    driver.ask({1: 0.0})
    driver.end({1: 0.0})
    driver.link.chunks.clear()
    evaluation.choose(dataclasses.replace(RulePolicy(SPEC), generation=2))
    assert not evaluation.is_done
    driver.ask({2: 0.0})
    driver.end({2: 0.0})
    assert [chunk.generation for chunk in driver.link.chunks] == [2]
