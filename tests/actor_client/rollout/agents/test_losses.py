"""Tests agents' rows after the loss of environments, sessions, generations and agents."""

from __future__ import annotations

import numpy as np
from rollcast.enums import SegmentEnd

from actor_client.policy.actions import Actions, MemoryForm
from tests.actor_client.rollout.agents.driver import SPEC, Driver, answers, story
from tests.actor_client.rollout.harness import KeepingLink, remembered

CUT, TERMINATED = SegmentEnd.CUT, SegmentEnd.TERMINATED


def test_answers_to_agents_that_are_gone_are_left_out() -> None:
    """Answers to agents of a lost environment are dropped; other agents get theirs."""
    driver = Driver()
    gone = driver.ask({1: 10.0, 2: 11.0}, env=0, act=False)
    here = driver.ask({1: 20.0}, env=1, act=False)
    driver.recorder.drop_env(0, "reset")
    anew = driver.ask({1: 30.0}, env=0, act=False)
    chosen = np.array([[1], [0], [1]], np.int32)
    driver.recorder.act(np.array([gone[0], here[0], gone[1]]), Actions(None, chosen, -chosen.astype(np.float32), None))
    driver.recorder.act(gone, answers(2))
    assert driver.recorder.in_flight == 1
    driver.recorder.act(anew, answers(1))
    driver.end({1: 31.0}, env=0)
    driver.end({1: 21.0}, env=1)

    assert driver.column("obs/state") == [[30], [20]]
    assert driver.column("discrete_action") == [[1], [0]]


def test_agents_of_an_environment_that_has_gone_are_interrupted_where_they_were_seen_last() -> None:
    """Their actions without an outcome are no steps, those who wait included; others go on."""
    driver = Driver()
    driver.ask({1: 10.0, 2: 20.0, 3: 30.0}, env=0)
    driver.ask({1: 40.0}, env=1)
    driver.ask({1: 11.0, 2: 21.0}, env=0, reward=2.0)
    driver.ask({2: 22.0}, env=0, reward=3.0, act=False)
    driver.recorder.leave(0)
    assert (driver.recorder.agents, driver.recorder.in_flight) == (1, 1)
    driver.ask({1: 50.0}, env=0)
    driver.end({1: 51.0}, env=0)
    driver.end({1: 41.0}, env=1)

    cut_off = SegmentEnd.TRUNCATED
    assert story(driver) == [
        ([10, 11], cut_off),
        ([20, 21, 22], cut_off),
        ([50, 51], TERMINATED),
        ([40, 41], TERMINATED),
    ]
    assert driver.column("episode/return") == [2, 5, 1, 1]
    books = driver.link.books.view()
    assert (books.produced, books.discarded) == (5, {})


def test_rows_of_an_old_generation_are_discarded_even_in_flight() -> None:
    """Rows of an old generation are discarded, also in flight; the episode continues with its whole return."""
    driver = Driver()
    driver.ask({1: 10.0})
    driver.ask({1: 11.0}, reward=1.0)
    waiting = driver.ask({2: 20.0}, act=False)
    driver.recorder.swap(2, 0)
    driver.recorder.act(waiting, answers(1))
    driver.ask({1: 12.0}, reward=2.0)
    driver.end({1: 13.0, 2: 21.0}, reward=4.0)

    assert story(driver) == [([12, 13], TERMINATED), ([20, 21], TERMINATED)]
    assert [piece.first_step for piece in driver.pieces()] == [2, 0]
    assert {chunk.generation for chunk in driver.link.chunks} == {2}
    books = driver.link.books.view()
    assert (books.produced, books.discarded) == (4, {"generation": 2})
    assert driver.column("episode/return") == [7, 4]
    assert driver.column("episode/length") == [3, 1]


def test_a_lost_session_costs_what_was_not_sent() -> None:
    """A lost session discards open and closed rows and records in its books; rows in flight count in the new ones."""
    driver = Driver(KeepingLink(SPEC, time_horizon=2))
    driver.ask({1: 10.0, 2: 20.0})
    driver.end({2: 21.0})
    for step in range(11, 14):
        driver.ask({1: float(step)})
    lost = driver.link.books
    driver.recorder.discard("session_lost")
    driver.link.begin_session()
    assert (lost.view().produced, lost.view().open, lost.view().discarded) == (4, 0, {"session_lost": 4})
    driver.end({1: 14.0})

    assert story(driver) == [([13, 14], TERMINATED)]
    assert [piece.first_step for piece in driver.pieces()] == [3]
    assert driver.column("episode/length") == [4]
    assert driver.link.books.view().produced == 1


def test_a_lost_environment_costs_its_open_rows() -> None:
    """A lost environment discards its open rows by reason; closed ones and other environments stay."""
    driver = Driver(KeepingLink(SPEC, time_horizon=2))
    for step in range(4):
        driver.ask({1: 10.0 + step}, env=0)
        driver.ask({1: 20.0 + step}, env=1)
    driver.recorder.drop_env(0, "player_lost")
    assert (driver.recorder.agents, driver.recorder.in_flight) == (1, 1)
    driver.end({1: 14.0}, env=0)
    driver.end({1: 24.0}, env=1)

    assert story(driver) == [([10, 11, 12], CUT), ([20, 21, 22], CUT), ([22, 23, 24], TERMINATED)]
    assert driver.link.books.view().discarded == {"player_lost": 1}
    assert driver.column("episode/env") == [1]
    assert driver.recorder._pool.used == 0


def test_rows_that_are_not_finite_cost_the_open_segment() -> None:
    """A step with NaN discards the open segment; then recording continues."""
    driver = Driver()
    for step in range(3):
        driver.ask({1: 10.0 + step, 2: 20.0 + step})
    driver.ask({1: 0.0, 2: 23.0}, faulty=[1])
    driver.ask({1: 14.0, 2: 24.0})
    driver.end({1: 15.0, 2: 25.0})

    assert story(driver) == [([14, 15], TERMINATED), ([20, 21, 22, 23, 24, 25], TERMINATED)]
    assert [piece.first_step for piece in driver.pieces()] == [4, 0]
    books = driver.link.books.view()
    assert (books.produced, books.discarded) == (10, {"not_finite": 4})
    assert driver.column("episode/return") == [5]
    assert driver.recorder.unusable_episodes == 1
    driver.link.chunks.clear()
    driver.ask({1: 10.0})
    driver.ask({1: 11.0})
    driver.end({1: 0.0}, faulty=True)  # so does an end
    assert story(driver) == []
    assert driver.link.books.view().discarded == {"not_finite": 6}
    assert driver.recorder.unusable_episodes == 2
    assert driver.recorder._pool.used == 0


def test_a_return_beyond_float32_is_not_reported() -> None:
    """A return beyond float32 is not reported, and its rows are sent."""
    driver = Driver()
    driver.ask({1: 10.0})
    driver.ask({1: 11.0}, reward=3e38)
    driver.end({1: 12.0}, reward=3e38)

    assert story(driver) == [([10, 11, 12], TERMINATED)]
    assert driver.recorder.unusable_episodes == 1
    assert driver.column("episode/return") == []


def test_agents_that_never_say_goodbye_are_forgotten() -> None:
    """Beyond the limit of an environment, the oldest absent agents are forgotten, by reason."""
    driver = Driver(max_agents=3)
    driver.ask({1: 10.0, 2: 20.0, 3: 30.0})
    driver.ask({2: 21.0})
    driver.ask({1: 11.0})
    driver.ask({1: 12.0, 4: 40.0, 5: 50.0})
    assert driver.recorder.agents == 3
    assert driver.recorder.in_flight == 3
    assert driver.link.books.view().discarded == {"too_many_agents": 1}
    driver.end({1: 13.0, 2: 22.0, 4: 41.0, 5: 51.0})

    assert story(driver) == [([10, 11, 12, 13], TERMINATED), ([40, 41], TERMINATED), ([50, 51], TERMINATED)]
    assert driver.recorder._pool.used == 0


FORM = MemoryForm(size=2, stride=2)


def answered(driver: Driver, numbers: dict[int, float], *, env: int = 0) -> None:
    """Answers agents with a policy that has these memories of them."""
    slots = driver.ask(dict.fromkeys(numbers, 0.0), env=env, act=False)
    memory = np.repeat(np.array(list(numbers.values()), np.float32)[:, None], 2, axis=1)
    driver.recorder.act(slots, answers(len(numbers))._replace(memory_in=memory))


def make(time_horizon: int = 8) -> Driver:
    """Returns a recorder whose policy has a memory."""
    driver = Driver(KeepingLink(SPEC, time_horizon, memory=FORM), has_policy=False)
    driver.recorder.swap(1, 0, FORM)
    return driver


def test_memories_go_with_the_first_row_of_every_sequence() -> None:
    """Memories are sent with the first row of each agent's sequences."""
    driver = make(5)
    for step in range(13):
        answered(driver, {1: step, 2: 100 + step} if step < 8 else {1: step})
        if step == 7:
            driver.end({2: 1.0})
    driver.recorder.cut()
    found = [numbers for chunk in driver.link.chunks for numbers in remembered(chunk, 2)]
    assert sorted(found) == [[0, 2, 4], [5, 7, 9], [10, 12][:1], [100, 102, 104], [105, 107]]


def test_a_pool_that_grows_keeps_memories() -> None:
    """Memories stay with their rows when the pool grows."""
    driver = make(1000)
    for step in range(700):
        answered(driver, {1: step})
    driver.recorder.cut()
    assert remembered(driver.link.chunks[0], 2)[0] == list(range(0, 699, 2))


def test_another_generation_may_have_another_form() -> None:
    """Agents that wait at a new generation are recorded with its memory size."""
    driver = make()
    slots = driver.ask({1: 0.0}, act=False)
    other = MemoryForm(size=3, stride=4)
    driver.link.memory = other
    driver.recorder.swap(2, 0, other)
    driver.recorder.act(slots, answers(1)._replace(memory_in=np.full((1, 3), 9.0, np.float32)))
    driver.end({1: 1.0})
    driver.recorder.flush()
    assert driver.link.chunks[0].columns["memory"].tolist() == [[9.0, 9.0, 9.0]]
