"""Memories of agents that step when they like."""

from __future__ import annotations

import numpy as np

from actor_client.policy.actions import MemoryForm
from tests.actor_client.rollout.agents.driver import SPEC, Driver, answers
from tests.actor_client.rollout.harness import KeepingLink, remembered

FORM = MemoryForm(size=2, stride=2)


def answered(driver: Driver, numbers: dict[int, float], *, env: int = 0) -> None:
    """Agents ask and are answered by a policy that remembered these numbers of them."""
    slots = driver.ask(dict.fromkeys(numbers, 0.0), env=env, act=False)
    memory = np.repeat(np.array(list(numbers.values()), np.float32)[:, None], 2, axis=1)
    driver.recorder.act(slots, answers(len(numbers))._replace(memory_in=memory))


def make(time_horizon: int = 8) -> Driver:
    """A recorder whose policy has a memory."""
    driver = Driver(KeepingLink(SPEC, time_horizon, memory=FORM), has_policy=False)
    driver.recorder.swap(1, 0, FORM)
    return driver


def test_memories_go_with_the_first_row_of_every_sequence() -> None:
    """Those of each agent's own segments, every stride rows from their starts."""
    driver = make(5)
    for step in range(13):
        answered(driver, {1: step, 2: 100 + step} if step < 8 else {1: step})
        if step == 7:
            driver.end({2: 1.0})
    driver.recorder.cut()
    found = [numbers for chunk in driver.link.chunks for numbers in remembered(chunk, 2)]
    assert sorted(found) == [[0, 2, 4], [5, 7, 9], [10, 12][:1], [100, 102, 104], [105, 107]]


def test_a_pool_that_grows_keeps_memories() -> None:
    """Hundreds of open rows later each is where it was."""
    driver = make(1000)
    for step in range(700):
        answered(driver, {1: step})
    driver.recorder.cut()
    assert remembered(driver.link.chunks[0], 2)[0] == list(range(0, 699, 2))


def test_another_generation_may_have_another_form() -> None:
    """Agents that wait when it comes are answered, and recorded, in its form."""
    driver = make()
    slots = driver.ask({1: 0.0}, act=False)
    other = MemoryForm(size=3, stride=4)
    driver.link.memory = other
    driver.recorder.swap(2, 0, other)
    driver.recorder.act(slots, answers(1)._replace(memory_in=np.full((1, 3), 9.0, np.float32)))
    driver.end({1: 1.0})
    driver.recorder.flush()
    assert driver.link.chunks[0].columns["memory"].tolist() == [[9.0, 9.0, 9.0]]


def test_agents_that_were_forgotten_take_their_memories_along() -> None:
    """Answers to agents that are gone are left out, with what was remembered of them."""
    driver = make()
    slots = driver.ask({1: 0.0, 2: 0.0, 3: 0.0}, act=False)
    driver.end({2: 0.0})
    memory = np.array([[1, 1], [2, 2], [3, 3]], np.float32)
    driver.recorder.act(slots, answers(3)._replace(memory_in=memory))
    driver.end({1: 1.0, 3: 1.0})
    driver.recorder.flush()
    assert driver.link.chunks[0].columns["memory"].tolist() == [[1, 1], [3, 3]]
