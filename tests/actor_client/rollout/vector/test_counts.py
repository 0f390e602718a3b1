"""What the loop counts for metrics, and when it beats."""

from __future__ import annotations

from actor_client.counts import RolloutCounts
from actor_client.envs.scalar import ScalarBatch
from actor_client.heartbeat import Heartbeat
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy


class Beats(Heartbeat):
    """Counts beats."""

    def __init__(self) -> None:
        super().__init__()
        self.beats = 0

    def beat(self) -> None:
        """Counts one."""
        self.beats += 1


def run(limits: LoopLimits, *environments: toys.Toy) -> tuple[RolloutCounts, Beats, KeepingLink]:
    """Runs a loop over environments, the later ones for remakes."""
    waiting, counts, beats = list(environments), RolloutCounts(), Beats()

    def make() -> ScalarBatch:
        return ScalarBatch([waiting.pop(0)], "Toy")

    batch = make()
    link = KeepingLink(batch.spec)
    link.policies.append(RulePolicy(batch.spec))
    RolloutLoop(make, batch, KeepingSession(), link, limits=limits, counts=counts, heartbeat=beats).run()
    return counts, beats, link


def test_steps_and_episodes_are_counted_as_they_happen() -> None:
    """Every step counts and beats, one in sixteen is timed, an episode counts by how it ended."""
    counts, beats, link = run(LoopLimits(max_steps=33), toys.Toy(length=4))
    assert counts.env_steps == beats.beats == link.books.view().produced == 33
    assert counts.episodes == {"terminated": 0, "truncated": 8, "env_error": 0}
    for tally in (counts.act_seconds, counts.env_step_seconds, counts.record_seconds):
        assert sum(tally.counts) == 3
        assert tally.total > 0


def test_failed_environments_are_counted() -> None:
    """A failure counts, and so does the episode that it cut off."""
    failing = toys.Toy(length=100, step_fails=(5,))
    limits = LoopLimits(max_steps=12, remake_pause_seconds=0.0)
    counts, _, link = run(limits, failing, toys.Toy(length=100))
    assert counts.env_failures == counts.episodes["env_error"] == 1
    assert counts.env_steps == 12
    assert link.books.view().balanced
