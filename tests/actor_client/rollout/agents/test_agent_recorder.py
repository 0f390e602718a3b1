"""Agents that come, ask and go, case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.policy.actions import Actions
from actor_client.rollout.agents.recorder import AgentRecorder
from actor_client.unity.steps import DecisionBatch, TerminalBatch
from tests.actor_client.rollout.harness import KeepingLink, Piece, pieces

SPEC = BehaviorSpec(
    name="Case",
    observations=(ObservationSpec("state", np.dtype(np.float32), (1,)),),
    action=ActionSpec(discrete_branches=(2,)),
)


@dataclass
class Driver:
    """A recorder whose time and messages are set by hand."""

    link: KeepingLink
    now: float = 100.0
    recorder: AgentRecorder = field(init=False)

    def __post_init__(self) -> None:
        """Begins with version 0 of generation 1."""
        self.recorder = AgentRecorder(self.link.spec, self.link, clock=lambda: self.now)
        self.recorder.swap(1, 0)

    def ask(
        self,
        seen: dict[int, float],
        *,
        env: int = 0,
        reward: float = 1.0,
        act: bool = True,
        revision: int = 0,
        faulty: Sequence[int] = (),
    ) -> NDArray[np.int64]:
        """Agents ask, showing one number each, and are answered unless the test does that."""
        count = len(seen)
        batch = DecisionBatch(
            ids=np.array(list(seen), np.int64),
            observations=observed(seen.values()),
            masks=None,
            rewards=np.full(count, reward, np.float32),
            group_ids=np.zeros(count, np.int64),
            group_rewards=np.zeros(count, np.float32),
            faulty=np.isin(list(seen), list(faulty)) if faulty else None,
        )
        slots = self.recorder.observe(env, batch, settings_revision=revision)
        if act:
            self.recorder.act(slots, answers(count))
        return slots

    def end(
        self, seen: dict[int, float], *, env: int = 0, reward: float = 1.0, cut_off: bool = False, faulty: bool = False
    ) -> None:
        """Episodes of agents end."""
        count = len(seen)
        batch = TerminalBatch(
            ids=np.array(list(seen), np.int64),
            observations=observed(seen.values()),
            interrupted=np.full(count, cut_off),
            rewards=np.full(count, reward, np.float32),
            group_ids=np.zeros(count, np.int64),
            group_rewards=np.zeros(count, np.float32),
            faulty=np.ones(count, np.bool_) if faulty else None,
        )
        self.recorder.finish(env, batch)

    def pieces(self) -> list[Piece]:
        """What arrived so far."""
        return pieces(self.link.chunks)


def observed(numbers: Any) -> list[NDArray[Any]]:
    """One number an agent."""
    return [np.array(list(numbers), np.float32)[:, None]]


def answers(count: int) -> Actions:
    """Always the second choice."""
    return Actions(None, np.ones((count, 1), np.int32), np.full((count, 1), -0.5, np.float32), None)


def seen_in(piece: Piece) -> list[float]:
    """The numbers that were shown, the final one at the end."""
    return [*piece.rows["obs/state"][:, 0].tolist(), float(piece.final["final_obs/state"][0])]


def test_a_row_is_complete_when_its_agent_shows_up_again() -> None:
    """Two agents at different paces: each row has the reward that came with the agent's next message."""
    driver = Driver(KeepingLink(SPEC))
    driver.ask({1: 10.0, 2: 20.0}, reward=9.0)
    driver.ask({1: 11.0}, reward=1.0)
    driver.ask({1: 12.0, 2: 21.0}, reward=2.0)
    assert driver.link.books.view().produced == 3
    assert (driver.recorder.in_flight, driver.recorder.agents, driver.recorder.open_steps) == (2, 2, 3)
    driver.end({1: 13.0}, reward=3.0)
    driver.end({2: 22.0}, reward=4.0, cut_off=True)
    driver.recorder.flush()

    one, two = driver.pieces()
    assert (seen_in(one), one.rows["reward"].tolist(), one.end) == ([10, 11, 12, 13], [1, 2, 3], SegmentEnd.TERMINATED)
    assert (seen_in(two), two.rows["reward"].tolist(), two.end) == ([20, 21, 22], [2, 4], SegmentEnd.TRUNCATED)
    (chunk,) = driver.link.chunks
    assert chunk.columns["episode/return"].tolist() == [6, 6]
    assert chunk.columns["episode/length"].tolist() == [3, 2]
    assert (driver.recorder.in_flight, driver.recorder.agents, driver.recorder.open_steps) == (0, 0, 0)
