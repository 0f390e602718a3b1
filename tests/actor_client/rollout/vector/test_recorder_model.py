"""Compares the recorder with a simple one over random ends, swaps, limits and flushes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rollcast.enums import ColumnRole, SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.envs.base import StepResult
from actor_client.policy.actions import Actions
from actor_client.rollout.vector.recorder import Recorder
from tests.actor_client.rollout.harness import KeepingLink, limits, pieces

SPEC = BehaviorSpec(
    name="Model",
    observations=(
        ObservationSpec("id", np.dtype(np.float32), (1,)),
        ObservationSpec("wide", np.dtype(np.float32), (5, 2)),
    ),
    action=ActionSpec(continuous_size=1, discrete_branches=(3,)),
)


@dataclass(frozen=True, order=True)
class Row:
    """One step of one agent."""

    observed: float
    acted: int
    rewarded: float
    version: int


@dataclass
class Agent:
    """The open segment and episode of one agent."""

    rows: list[Row] = field(default_factory=list)
    episode: int = 1
    first_step: int = 0
    steps: int = 0
    total: float = 0.0


@dataclass
class SimpleRecorder:
    """Implements the design in the simplest way."""

    agents: list[Agent]
    horizon: int
    lag: int
    cut_at_swap: bool
    version: int = 0
    closed: list[tuple[Any, ...]] = field(default_factory=list)
    episodes: list[tuple[Any, ...]] = field(default_factory=list)
    produced: int = 0
    discarded: int = 0

    def close(self, env: int, end: SegmentEnd, final: float) -> None:
        """Moves open rows to the closed segments."""
        agent = self.agents[env]
        if agent.rows:
            self.closed.append((env, agent.episode, agent.first_step, end, tuple(agent.rows), final))
        agent.rows = []
        agent.first_step = agent.steps

    def record(self, env: int, row: Row, end: SegmentEnd | None, final: float, ignored: bool) -> None:
        """Records one agent's step: observation, end and next observation."""
        agent = self.agents[env]
        if ignored:
            self.close(env, SegmentEnd.CUT, row.observed)
            return
        agent.rows.append(row)
        agent.steps += 1
        agent.total += row.rewarded
        self.produced += 1
        if end is not None:
            self.close(env, end, final)
            self.episodes.append((env, agent.episode, agent.steps, end, agent.total, row.rewarded, row.version))
            self.agents[env] = Agent(episode=agent.episode + 1)
        elif len(agent.rows) == self.horizon:
            self.close(env, SegmentEnd.CUT, final)

    def swap(self, version: int, observed: NDArray[Any]) -> None:
        """Ends segments that the next version would make too old."""
        for env, agent in enumerate(self.agents):
            if agent.rows and (self.cut_at_swap or (self.lag and version - agent.rows[0].version >= self.lag)):
                self.close(env, SegmentEnd.CUT, float(observed[env]))
        self.version = version

    def cut(self, observed: NDArray[Any]) -> None:
        """Ends everything."""
        for env in range(len(self.agents)):
            self.close(env, SegmentEnd.CUT, float(observed[env]))

    def discard(self) -> None:
        """Discards open rows."""
        for agent in self.agents:
            self.discarded += len(agent.rows)
            agent.rows = []
            agent.first_step = agent.steps


@dataclass
class Play:
    """Feeds both recorders with the same random steps."""

    random: np.random.Generator
    recorder: Recorder
    simple: SimpleRecorder
    observed: NDArray[np.float32]
    next_id: float = 0.0

    def step(self, end_share: float, ignore_share: float) -> None:
        """Steps all agents; observations are unique numbers."""
        agents = len(self.simple.agents)
        before = self.observed
        acts = self.random.integers(0, 3, agents)
        rewards = self.random.integers(-5, 6, agents).astype(np.float32)
        ignored = self.random.random(agents) < ignore_share
        ends = np.where(ignored | (self.random.random(agents) >= end_share), 0, self.random.integers(2, 4, agents))
        after, finals = self._ids(agents), self._ids(agents)
        ended = np.flatnonzero(ends)
        actions = Actions(
            np.zeros((agents, 1), np.float32),
            acts[:, None].astype(np.int32),
            np.full((agents, 2), -1.0, np.float32),
            None,
        )
        result = StepResult(
            observations=observation(after),
            rewards=rewards,
            ended=ended.tolist(),
            ends=ends[ended].astype(np.uint8),
            final_observations=observation(finals[ended]),
            final_masks=None,
            infos=[{"same_env": float(env)} for env in ended],
            ignored=ignored if ignore_share else None,
        )
        self.recorder.record(observation(before), None, actions, result, None)
        for env in range(agents):
            row = Row(float(before[env]), int(acts[env]), float(rewards[env]), self.simple.version)
            end = SegmentEnd(int(ends[env])) if ends[env] else None
            final = finals[env] if ends[env] else after[env]
            self.simple.record(env, row, end, float(final), bool(ignored[env]))
        self.observed = after

    def swap(self) -> None:
        """Swaps to a version that is 1 to 3 newer."""
        version = self.simple.version + int(self.random.integers(1, 4))
        self.recorder.swap(1, version, observation(self.observed), None)
        self.simple.swap(version, self.observed)

    def _ids(self, count: int) -> NDArray[np.float32]:
        self.next_id += count
        return np.arange(self.next_id - count, self.next_id, dtype=np.float32)


def observation(ids: NDArray[np.float32]) -> list[NDArray[Any]]:
    """Returns both observations of some agents, made from one number each."""
    return [ids[:, None], np.broadcast_to(ids[:, None, None], (len(ids), 5, 2)).copy()]


SHARES = st.sampled_from([0.0, 0.05, 0.4])
CASES = st.builds(
    SimpleNamespace,
    seed=st.integers(0, 2**32 - 1),
    agents=st.integers(1, 5),
    steps=st.integers(1, 80),
    horizon=st.integers(1, 20),
    lag=st.sampled_from([0, 1, 2, 5]),
    cut_at_swap=st.booleans(),
    chunk_limits=st.builds(
        limits,
        target=st.sampled_from([1, 500, 5000, 1 << 18]),
        largest=st.sampled_from([7500, 9000, 1 << 22]),
        steps=st.sampled_from([0, 3, 50]),
    ),
    end_share=SHARES,
    ignore_share=SHARES,
    swap_share=SHARES,
    flush_share=SHARES,
    discard_share=st.sampled_from([0.0, 0.02, 0.1]),
)


@settings(max_examples=50, deadline=None)
@given(CASES)
def test_every_row_arrives_once_in_the_right_segment(case: SimpleNamespace) -> None:
    """Segments, rows, ends, final observations, versions, records and books equal those of the simple recorder.

    Limits on bytes and rows shorten the horizon and split chunks; every chunk passes the contract's checks.
    """
    link = KeepingLink(
        SPEC,
        time_horizon=case.horizon,
        max_policy_lag=case.lag,
        cut_at_swap=case.cut_at_swap,
        limits=case.chunk_limits,
    )
    recorder = Recorder(SPEC, link, case.agents, clock=lambda: 0.0)
    simple = SimpleRecorder([Agent() for _ in range(case.agents)], recorder.horizon, case.lag, case.cut_at_swap)
    play = Play(np.random.default_rng(case.seed), recorder, simple, np.arange(-case.agents, 0, dtype=np.float32))
    recorder.begin(list(range(100, 100 + case.agents)))
    recorder.swap(1, 0, observation(play.observed), None)

    for _ in range(case.steps):
        play.step(case.end_share, case.ignore_share)
        swaps, flushes, discards = play.random.random(3) < (case.swap_share, case.flush_share, case.discard_share)
        if swaps:
            play.swap()
        if flushes:
            recorder.flush()
        if discards:
            recorder.discard_open("env_error")
            simple.discard()
    open_rows = sum(len(agent.rows) for agent in simple.agents)
    assert link.books.view().open == recorder.open_steps >= open_rows
    recorder.cut(observation(play.observed), None)
    simple.cut(play.observed)

    assert sorted(arrived(link)) == sorted(simple.closed)
    assert sorted(records(link)) == sorted(simple.episodes)
    books = link.books.view()
    assert books.balanced
    assert books.open == 0
    assert (books.produced, sum(books.discarded.values())) == (simple.produced, simple.discarded)
    assert books.unacked == sum(chunk.rows for chunk in link.chunks)


def arrived(link: KeepingLink) -> list[tuple[Any, ...]]:
    """Returns what the link was sent, in the simple recorder's words."""
    found = []
    for piece in pieces(link.chunks):
        ids = piece.rows["obs/id"][:, 0]
        assert (piece.rows["obs/wide"] == ids[:, None, None]).all()
        assert (piece.final["final_obs/wide"] == piece.final["final_obs/id"]).all()
        rows = tuple(
            Row(float(ids[i]), int(piece.rows["discrete_action"][i, 0]), float(piece.rows["reward"][i]), version)
            for i, version in enumerate(piece.versions)
        )
        final = float(piece.final["final_obs/id"][0])
        found.append((piece.env, piece.episode, piece.first_step, piece.end, rows, final))
    return found


def records(link: KeepingLink) -> list[tuple[Any, ...]]:
    """Returns the finished episodes as simple records, after checking their seeds and infos."""
    found = []
    for chunk in link.chunks:
        for row in range(chunk.episodes):
            names = [name for name, role in chunk.roles.items() if role is ColumnRole.EPISODE]
            of = {name.partition("/")[2]: chunk.columns[name][row] for name in names}
            assert of["seed"] == 100 + of["env"]
            assert of["same_env"] == of["env"]
            assert of["first_version"] <= of["last_version"]
            found.append(
                (
                    int(of["env"]),
                    int(of["episode"]),
                    int(of["length"]),
                    SegmentEnd(int(of["end"])),
                    float(of["return"]),
                    float(of["last_reward"]),
                    int(of["last_version"]),
                )
            )
    return found
