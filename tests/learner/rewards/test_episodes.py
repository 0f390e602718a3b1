"""Rewards of an episode, from sums over steps."""

from __future__ import annotations

import numpy as np
import pytest

from learner.rewards.episodes import EpisodeRewards


def test_sums_wait_for_an_end() -> None:
    """Nothing is said before an episode has ended; then all sums since the last end are divided by the ends."""
    rewards = EpisodeRewards()
    assert rewards.add({"rnd": 3.0, "curiosity": 1.0}, 0) == {}
    assert rewards.add({"rnd": 5.0, "curiosity": 1.0}, 4) == {"rnd": 2.0, "curiosity": 0.5}
    assert rewards.episodes == 4
    assert rewards.add({"rnd": 6.0, "curiosity": 0.0}, 3) == {"rnd": 2.0, "curiosity": 0.0}


def test_weighted_means_are_those_of_the_episodes() -> None:
    """Agents whose episodes are of any length and end at any time: the mean is that of the sums of whole episodes."""
    random = np.random.default_rng(1)
    rewards, shown, whole = EpisodeRewards(), [], []
    running = np.zeros(8)
    for _ in range(4000):
        steps = random.exponential(size=8)
        running += steps
        ends = random.random(8) < 0.05
        whole += running[ends].tolist()
        running[ends] = 0.0
        for mean in rewards.add({"rnd": float(steps.sum())}, int(ends.sum())).values():
            shown += [mean] * rewards.episodes
    assert len(shown) == len(whole)
    assert np.mean(shown) == pytest.approx(np.mean(whole), rel=0.01)
