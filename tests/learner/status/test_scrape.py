"""The state of a learner as its metrics show it."""

from __future__ import annotations

from rollcast.v1 import session_pb2

from learner.observe.metrics.state import GpuMemory, MetricsSnapshot
from learner.observe.view import Bottleneck, RunState
from learner.status.run_status import RunStatus
from learner.status.scrape import Scrape
from tests.learner.service.harness import Actor, Learner, async_test, running
from tests.learner.service.samples import NAME, make_chunk, make_policy


def snapshot(learner: Learner, bottleneck: Bottleneck | None = None, gpu: GpuMemory | None = None) -> MetricsSnapshot:
    """Reads a learner without trainers."""
    run_status = RunStatus(
        learner.behaviors, learner.sessions, learner.ledger, learner.options.rollcast, run_id="run", generation=1
    )
    run_status.bottleneck = bottleneck or Bottleneck()
    scrape = Scrape(
        view=lambda: run_status.run_view(RunState.TRAINING, ""),
        behaviors=learner.behaviors,
        sessions=learner.sessions,
        store=learner.store,
        server=learner.server,
        trainers=dict,
        checkpoint_seconds=60.0,
        gpu=None if gpu is None else lambda: gpu,
    )
    return scrape.snapshot()


@async_test
async def test_a_learner_without_actors_shows_nothing_of_them() -> None:
    """No shares, no lags, no bottleneck: there is nobody to speak of."""
    async with running() as learner:
        now = snapshot(learner)
        assert (now.sessions_connected, now.sessions_silent, now.policy_subscribers) == (0, 0, 0)
        assert (now.step_shares, now.policy_lags, now.gpu) == (None, None, None)
        assert now.run.bottleneck == Bottleneck()
        assert (now.run.run_id, now.run.generation, now.run.state) == ("run", 1, RunState.TRAINING)


@async_test
async def test_queue_credit_and_policy_are_those_of_the_moment() -> None:
    """What waits, what was granted and not taken, what was published, and who is there with what policy."""
    async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port, "b") as silent:
        upload = await actor.join()
        await silent.open()
        learner.pace(held_steps=7, ahead_limit_steps=100)
        await upload.send(make_chunk(5, sequence=1))
        await upload.ack(1)
        learner.store.publish(make_policy(3))
        await actor.renew(policies=[session_pb2.PolicyReport(behavior_index=0, generation=1, version=1)])
        await silent.renew(policies=[session_pb2.PolicyReport(behavior_index=0, generation=1, version=2)])
        now = snapshot(learner, Bottleneck("actors", "", learner_busy=0.25, actor_busy=0.75), GpuMemory(1, 2))
        behavior = now.behaviors[0]
        assert (behavior.view.name, behavior.view.queued_steps, behavior.unsettled_steps) == (NAME, 5, 12)
        assert behavior.view.books["received"] == behavior.view.books["queued"] == 5
        assert (behavior.policy_version, behavior.ahead_limit_steps) == (3, 100)
        assert behavior.policy_bytes == len(make_policy(3).payload)
        account = learner.sessions.live()[0].accounts[0]
        assert behavior.credit_steps == account.granted_steps - account.produced_steps > 0
        assert (now.sessions_connected, now.sessions_silent) == (1, 1)
        assert now.policy_lags == (2.0, 2.0, 2.0)  # the other one declared nothing, and is not believed
        bottleneck = now.run.bottleneck
        assert (bottleneck.name, bottleneck.learner_busy, bottleneck.actor_busy) == ("actors", 0.25, 0.75)
        assert now.gpu == (1, 2)
