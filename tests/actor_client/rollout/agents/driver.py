"""A recorder of agents whose time and messages the test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents
from actor_client.rollout.agents.recorder import MAX_AGENTS, AgentRecorder
from tests.actor_client.rollout.harness import KeepingLink, Piece, pieces

SPEC = BehaviorSpec(
    name="Case",
    observations=(ObservationSpec("state", np.dtype(np.float32), (1,)),),
    action=ActionSpec(discrete_branches=(2,)),
)


@dataclass
class Driver:
    """Starts with version 0 of generation 1, unless it is made without a policy."""

    link: KeepingLink = field(default_factory=lambda: KeepingLink(SPEC))
    now: float = 100.0
    max_agents: int = MAX_AGENTS
    has_policy: bool = True
    recorder: AgentRecorder = field(init=False)

    def __post_init__(self) -> None:
        """Makes the recorder."""
        self.recorder = AgentRecorder(self.link.spec, self.link, clock=lambda: self.now, max_agents=self.max_agents)
        if self.has_policy:
            self.recorder.swap(1, 0)

    def ask(
        self,
        seen: Mapping[int, float],
        *,
        env: int = 0,
        reward: float = 1.0,
        group_reward: float = 0.0,
        groups: Mapping[int, int] | None = None,
        masks: Sequence[Sequence[int]] | None = None,
        act: bool = True,
        revision: int = 0,
        faulty: Sequence[int] = (),
    ) -> NDArray[np.int64]:
        """Lets agents ask with one number each, and answers them unless the test does."""
        count = len(seen)
        batch = AskingAgents(
            ids=np.array(list(seen), np.int64),
            observations=observed(seen.values()),
            masks=None if masks is None else np.array(masks, np.uint8),
            rewards=np.full(count, reward, np.float32),
            group_ids=np.array([(groups or {}).get(identity, 0) for identity in seen], np.int64),
            group_rewards=np.full(count, group_reward, np.float32),
            faulty=np.isin(list(seen), list(faulty)) if faulty else None,
        )
        slots = self.recorder.observe(env, batch, settings_revision=revision)
        if act:
            self.recorder.act(slots, answers(count))
        return slots

    def end(
        self,
        seen: Mapping[int, float],
        *,
        env: int = 0,
        reward: float = 1.0,
        group_reward: float = 0.0,
        cut_off: Sequence[int] = (),
        faulty: bool = False,
    ) -> None:
        """Ends episodes of agents, some of them truncated."""
        count = len(seen)
        batch = EndedAgents(
            ids=np.array(list(seen), np.int64),
            observations=observed(seen.values()),
            interrupted=np.isin(list(seen), list(cut_off)),
            rewards=np.full(count, reward, np.float32),
            group_ids=np.zeros(count, np.int64),
            group_rewards=np.full(count, group_reward, np.float32),
            faulty=np.ones(count, np.bool_) if faulty else None,
        )
        self.recorder.finish(env, batch)

    def pieces(self) -> list[Piece]:
        """Returns what arrived, after everything that is closed was sent."""
        self.recorder.flush()
        return pieces(self.link.chunks)

    def column(self, name: str) -> list[Any]:
        """Returns a column of all chunks that have it."""
        self.recorder.flush()
        return [value for chunk in self.link.chunks if name in chunk.columns for value in chunk.columns[name].tolist()]


def observed(numbers: Any) -> list[NDArray[Any]]:
    """Returns one number for each agent."""
    return [np.array(list(numbers), np.float32)[:, None]]


def answers(count: int) -> Actions:
    """Returns the second choice for each agent."""
    return Actions(None, np.ones((count, 1), np.int32), np.full((count, 1), -0.5, np.float32), None)


def seen_in(piece: Piece) -> list[float]:
    """Returns the observations of a segment, the final one last."""
    return [*piece.rows["obs/state"][:, 0].tolist(), float(piece.final["final_obs/state"][0])]


def story(driver: Driver) -> list[tuple[list[float], SegmentEnd]]:
    """Returns what was seen in each segment that arrived, and how it ended."""
    return [(seen_in(piece), piece.end) for piece in driver.pieces()]
