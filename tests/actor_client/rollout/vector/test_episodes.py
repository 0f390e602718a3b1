"""Records of episodes whose return cannot be sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from gymnasium import spaces
from rollcast.chunks import Chunk
from rollcast.trajectories import decode_chunk, encode_chunk, find_data_fault
from structlog.testing import capture_logs

from actor_client.envs.scalar import ScalarBatch
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy

NAN, INF = float("nan"), float("inf")


@dataclass
class JudgingLink(KeepingLink):
    """Keeps what a learner takes, and why it refuses the rest."""

    refused: list[str] = field(default_factory=list)

    def send(self, chunk: Chunk) -> None:
        """Judges a chunk as the learner does."""
        chunk.sequence = 1
        fault = find_data_fault(decode_chunk(encode_chunk(chunk), self.spec, max_bytes=1 << 26), self.spec)
        if fault is None:
            super().send(chunk)
        else:
            self.refused.append(fault[1])


def played(*episodes: list[float]) -> tuple[JudgingLink, RolloutLoop]:
    """Plays episodes of equal length with these rewards, in chunks of three rows."""
    rewards = [reward for episode in episodes for reward in episode]
    batch = ScalarBatch([toys.Rewarding(*rewards, length=len(episodes[0]))], "Toy")
    link = JudgingLink(batch.spec, time_horizon=3)
    link.limits = link.limits.__class__(1, 1 << 22, 1e9, 0)
    link.policies.append(RulePolicy(batch.spec))
    limits = LoopLimits(max_steps=len(rewards))
    return link, RolloutLoop(lambda: batch, batch, KeepingSession(), lambda: link, limits=limits)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf; see endings.run_command
@pytest.mark.parametrize("bad", [[NAN, 1.0], [INF, 1.0], [INF, -INF]])
def test_one_bad_reward_costs_one_chunk(bad: list[float]) -> None:
    """A bad reward costs the chunk of its row and the episode's record."""
    link, loop = played([1.0, *bad, 1.0, 1.0, 1.0], [2.0] * 6)
    with capture_logs() as logs:
        stats = loop.run()

    assert len(link.refused) == 1
    assert "column reward, row 1" in link.refused[0]
    assert sum(chunk.rows for chunk in link.chunks) == 9
    returns = [chunk.columns["episode/return"].tolist() for chunk in link.chunks if chunk.episodes]
    assert returns == [[12.0]]
    assert (stats.episodes, stats.unusable_episodes) == (2, 1)
    assert [(log["event"], log["unusable_episodes"]) for log in logs] == [("episode_not_finite", 1)]


def test_a_return_beyond_float32_costs_no_rows() -> None:
    """If a return exceeds float32 but its rewards do not, the rows are sent without the record."""
    link, loop = played([3e38] * 6, [-3e38] * 6, [1.0] * 6)
    stats = loop.run()

    assert not link.refused
    assert sum(chunk.rows for chunk in link.chunks) == 18
    assert [chunk.columns["episode/return"].tolist() for chunk in link.chunks if chunk.episodes] == [[6.0]]
    assert stats.unusable_episodes == 2


def test_infos_may_be_beyond_float32() -> None:
    """Infos beyond float32 are sent without a numpy warning."""

    class Telling(toys.Toy):
        def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, float]]:
            observation, _, terminated, truncated, _ = super().step(action)
            return observation, 1.0, terminated, truncated, {"score": 1e300}

    batch = ScalarBatch([Telling(spaces.Box(-1.0, 1.0, (2,), np.float32), length=2)], "Toy")
    link = JudgingLink(batch.spec)
    link.policies.append(RulePolicy(batch.spec))
    RolloutLoop(lambda: batch, batch, KeepingSession(), lambda: link, limits=LoopLimits(max_steps=2)).run()
    assert np.isinf(link.chunks[0].columns["info/score"]).all()
