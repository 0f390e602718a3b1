"""Tests the state of a learner in its metrics."""

from __future__ import annotations

from rollcast.v1 import session_pb2

from learner.link.to_front import Stats
from learner.service.metrics.state import MetricsSnapshot
from learner.service.run.scrape import Scrape
from learner.shared.observe.view import Bottleneck, GpuUse, RunState
from tests.learner.service.calls.harness import Actor, Learner, running
from tests.learner.service.calls.samples import NAME, make_chunk, make_policy


def snapshot(learner: Learner, bottleneck: Bottleneck | None = None) -> MetricsSnapshot:
    """Reads a learner without trainers."""
    run_status = learner.run_status
    run_status.note_bottleneck(bottleneck or Bottleneck())
    scrape = Scrape(
        view=lambda: run_status.run_view(RunState.TRAINING, ""),
        run_status=run_status,
        sessions=learner.sessions,
        server=learner.server,
        checkpoint_seconds=60.0,
    )
    return scrape.snapshot()


async def test_queue_credit_and_policy_are_those_of_the_moment() -> None:
    """The metrics show queue, credit, policies and actors at the time of the scrape."""
    async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port, "b") as silent:
        upload = await actor.join()
        await silent.open()
        learner.pace(owed_steps=7, ahead_limit_steps=100)
        await upload.deliver(make_chunk(5, sequence=1))
        learner.publish(make_policy(3))
        await actor.renew(policies=[session_pb2.PolicyReport(behavior_index=0, generation=1, version=1)])
        await silent.renew(policies=[session_pb2.PolicyReport(behavior_index=0, generation=1, version=2)])
        learner.run_status.take_stats(Stats(learner.run_status.stats.made_at, gpu=GpuUse(1, 2, 3)))
        now = snapshot(learner, Bottleneck("actors", "", learner_busy=0.25, actor_busy=0.75))
        behavior = now.run.behaviors[0]
        assert (behavior.name, behavior.queued_steps, behavior.numbers["unsettled_steps"]) == (NAME, 5, 12)
        assert behavior.books["received"] == behavior.books["queued"] == 5
        assert (behavior.numbers["policy_version"], behavior.numbers["ahead_limit_steps"]) == (3, 100)
        assert behavior.numbers["policy_bytes"] == len(make_policy(3).payload)
        account = learner.sessions.live()[0].accounts[0]
        assert behavior.numbers["credit_steps"] == account.granted_steps - account.produced_steps > 0
        assert (now.sessions_connected, now.sessions_silent) == (1, 1)
        assert now.policy_lags == (2.0, 2.0, 2.0)  # the other one declared nothing, and is not believed
        bottleneck = now.run.bottleneck
        assert (bottleneck.name, bottleneck.learner_busy, bottleneck.actor_busy) == ("actors", 0.25, 0.75)
        assert now.gpu == GpuUse(1, 2, 3)
        assert now.disk is not None
        assert 0 < now.disk.free < now.disk.total
