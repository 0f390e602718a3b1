"""The actor's part of an update: everything ends at one step, is sent, and play continues where it was."""

from __future__ import annotations

from typing import Any

from rollcast.enums import SegmentEnd

from actor_client.envs.scalar import ScalarBatch
from actor_client.policy.actions import MemoryForm
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy, pieces, remembered

ENVS = 3


def play(*quotas: int, horizon: int = 8, **options: Any) -> KeepingLink:
    """Plays through quotas, each given when the actor waits; returns what it sent.

    Args:
        quotas: Produced steps after which the actor waits.
        horizon: Most steps of a segment.
        options: Of the link.
    """

    def make() -> ScalarBatch:
        return ScalarBatch([toys.Toy(length=100) for _ in range(ENVS)], "Toy")

    batch = make()
    waiting = list(quotas)
    link = KeepingLink(batch.spec, time_horizon=horizon, quota_through=waiting.pop(0), **options)
    link.policies.append(RulePolicy(link.spec, version=0, memory=link.memory))
    session = KeepingSession()

    def next_quota() -> None:
        assert link.books.view().open == 0, "an actor that waits for others has sent everything"
        if waiting:
            link.quota_through = waiting.pop(0)
        else:
            session.stopping = True

    session.on_wait = next_quota
    RolloutLoop(make, batch, session, lambda: link, limits=LoopLimits(remake_pause_seconds=0.0)).run()
    assert link.books.view().balanced
    return link


def test_open_segments_end_at_the_quota_in_all_environments() -> None:
    """A part of 10 steps each is a segment of 8 and one of 2, which bootstraps; the next part begins a new segment."""
    link = play(10 * ENVS, 15 * ENVS)
    segments = pieces(link.chunks)
    assert sorted((piece.env, piece.first_step, len(piece)) for piece in segments) == [
        (env, first, length) for env in range(ENVS) for first, length in ((0, 8), (8, 2), (10, 5))
    ]
    assert {piece.end for piece in segments} == {SegmentEnd.CUT}


def test_the_step_that_reaches_a_quota_is_taken_whole() -> None:
    """Environments step together: a part that is no multiple of them is rounded up."""
    assert play(10 * ENVS - 1).books.view().produced == 10 * ENVS


def test_a_memory_lives_through_a_quota() -> None:
    """The segment after a cut records the memory that the policy has then."""
    link = play(5 * ENVS, 9 * ENVS, memory=MemoryForm(size=4, stride=4))
    recorded = [memory for chunk in link.chunks for memory in remembered(chunk, 4)]
    assert recorded == [[0, 4]] * ENVS + [[5]] * ENVS
