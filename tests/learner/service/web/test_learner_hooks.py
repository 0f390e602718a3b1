"""Tests the page's data from a learner's real parts."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

from rollcast.errors import BadRequest, MalformedChunk
from rollcast.limits import MAX_STEPS
from rollcast.v1 import session_pb2

from learner.link.to_front import Stats
from learner.service.ingest.actor_rates import ActorRates
from learner.service.ingest.environments import FAILURE_SHOWN_SECONDS, EnvironmentState
from learner.service.ingest.session import PolicyState
from learner.service.metrics.learner import LearnerMetrics
from learner.service.web.learner_hooks import RunHooks
from learner.shared.observe.behavior_state import BehaviorState, TrainerStats
from learner.shared.observe.view import Bottleneck, RunState
from tests.learner.service.calls.harness import Actor, failure, running, status_of_run
from tests.learner.service.calls.samples import make_chunk, make_policy
from tests.learner.service.ingest.parts import NAME, Parts, make_options, report


class Rig:
    """A learner with one behavior at version 3, and its hooks."""

    def __init__(self) -> None:
        self.parts = parts = Parts(generation=2)
        self.run_status = parts.run_status(make_options().rollcast)
        self.run_status.bottleneck = Bottleneck("actors", "they are slow")
        self.metrics = LearnerMetrics()
        self.rates = ActorRates(parts.sessions)
        self.hooks = RunHooks(
            Mock(),
            lambda: self.run_status.run_view(RunState.TRAINING, "127.0.0.1:1"),
            parts.sessions,
            self.metrics,
            rates=self.rates,
            is_serving=lambda: True,
            history=self.run_status.history,
            version="1.0",
        )
        self.session = parts.open("rig").session
        parts.declared(self.session)
        stats = TrainerStats(version=3, env_steps_trained=40, episodes=2, numbers={"loss": 0.5})
        self.run_status.take_stats(Stats(parts.now, {NAME: stats}))


def test_an_actor() -> None:
    """An actor has its books, its lag, and what keeps its policy from acting."""
    rig = Rig()
    parts, session = rig.parts, rig.session
    books = report(produced=10, open=2, unacked=3, acked=4, discarded={"env_error": 1})
    policies = [PolicyState(0, generation=2, version=1, error="<b>broken</b>")]
    parts.sessions.renew(session, [books])
    session.note_policies(policies, lambda _: 3, 2)
    parts.now += 2.5
    status = rig.hooks.status()
    (actor,) = status.actors
    assert (actor.name, actor.index, actor.connected, actor.last_seen_seconds) == ("rig", 0, False, 2.5)
    assert (actor.lag, actor.error) == (2, "<b>broken</b>")
    assert actor.books.balanced
    assert (actor.books.produced, actor.books.discarded) == (10, {"env_error": 1})
    assert status.run.bottleneck.name == "actors"
    session.note_policies([PolicyState(0, generation=1, version=900)], lambda _: 3, 2)
    assert rig.hooks.status().actors[0].lag is None, "a policy of another start"
    assert (status.version, status.run.run_id) == ("1.0", "run")


def test_the_page_shows_what_is_wrong_with_environments() -> None:
    """A hanging call is shown before a failure, and both before a policy's error."""
    rig = Rig()
    rig.session.note_policies([PolicyState(0, generation=2, version=1, error="broken")], lambda _: 3, 2)
    rig.session.note_environments(EnvironmentState(failures=1, error="environment 0 failed: no"))
    assert rig.hooks.status().actors[0].error == "environment 0 failed: no"
    rig.session.note_environments(
        EnvironmentState(1, "environment 0 failed: no", "environment 3 has been in step()", 45)
    )
    assert rig.hooks.status().actors[0].error == "environment 3 has been in step() for 45 s"
    rig.session.note_environments(EnvironmentState(failures=1, error="environment 0 failed: no"))
    rig.parts.now += FAILURE_SHOWN_SECONDS + 1
    assert rig.hooks.status().actors[0].error == "broken"


def test_samples_become_curves() -> None:
    """A point of the history has counters, rates and the last update's numbers."""
    rig = Rig()
    assert rig.hooks.history(NAME, 0.0) is None
    for _ in range(3):
        rig.parts.now += 1.0
        rig.hooks.sample()
    view = rig.hooks.history(NAME, 1.5)
    assert view is not None
    assert view.columns["t"] == [2.0, 3.0]
    assert view.columns["loss"] == [0.5, 0.5]
    assert view.columns["env_steps_trained"] == [40.0, 40.0]
    assert view.columns["mean_return"] == [None, None]


def test_the_speed_of_an_actor() -> None:
    """The speed of an actor is computed between two samples."""
    rig = Rig()
    for steps in (0, 100, 200):
        rig.parts.sessions.renew(rig.session, [report(produced=steps, acked=steps)])
        rig.rates.update()
        rig.parts.now += 1.0
    assert rig.hooks.status().actors[0].steps_per_second == 100.0


def test_health_and_metrics() -> None:
    """The state of the health service and the metrics are those of the learner."""
    rig = Rig()
    assert rig.hooks.is_serving()
    assert b"rollcast_learner_chunks_received" in rig.hooks.metrics()


async def test_the_status_shows_the_run_and_its_actors() -> None:
    """The status has the run's state and each actor's books, policies, credit and connection."""
    async with running() as learner, Actor(learner.server.port, "mine") as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk(4))
        policy = session_pb2.PolicyReport(generation=1, version=3)
        await actor.renew(books=[session_pb2.ActorBooks(produced_steps=6, acked_steps=4)], policies=[policy])
        status = await status_of_run(learner)
        assert (status.run.run_id, status.run.state, status.version) == ("run", RunState.TRAINING, "test")
        (shown,) = status.actors
        assert (shown.name, shown.index, shown.connected) == ("mine", 0, True)
        assert shown.session_id
        assert actor.session_id not in str(status), "the id is a secret of the actor"
        assert shown.details is not None
        assert (shown.details.reports[0].produced, shown.details.reports[0].acked) == (6, 4)
        assert shown.details.policies[0].version == 3
        assert shown.credit_steps == 9 - 6
        assert (shown.wait_share, shown.round_trip_seconds) == (None, None)


async def test_the_status_shows_where_the_time_goes() -> None:
    """The status has the verdict with its figures, and each actor's waits, round trip and lag."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.join()
        learner.publish(make_policy(5))
        bottleneck = Bottleneck("network", "network-bound: so it is", 0.1, 0.2, 0.7)
        behaviors = (BehaviorState("CartPole", version=5),)
        learner.hooks.view = replace(learner.hooks.view, behaviors=behaviors, bottleneck=bottleneck)
        policy = session_pb2.PolicyReport(generation=1, version=3)
        for wall in (1.0, 2.0):
            times = session_pb2.ActorTimes(wall_seconds=wall, policy_seconds=wall / 4, round_trip_seconds=1.5)
            await actor.renew(policies=[policy], times=times)
        learner.publish(make_policy(9))  # versions that came since say nothing of what the actor has now
        status = await status_of_run(learner)
        (shown,) = status.actors
        assert (shown.wait_share, shown.waits_for, shown.round_trip_seconds, shown.lag) == (0.25, "policy", 1.5, 2)
        assert status.run.bottleneck == bottleneck


async def test_claims_without_bounds_are_refused_and_the_status_continues() -> None:
    """Counters beyond the bounds are BAD_REQUEST or MALFORMED_CHUNK, and undeclared policies are ignored."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        books = session_pb2.ActorBooks()
        for _ in range(3000):
            books.discarded.add(reason="reset", steps=MAX_STEPS)
        assert isinstance(await failure(actor.renew(books=[books])), BadRequest)
        policies = [session_pb2.PolicyReport(behavior_index=index, error="x" * 500) for index in range(100)]
        await actor.renew(policies=policies)
        (shown,) = (await status_of_run(learner)).actors
        assert shown.details is not None
        assert [policy.behavior_index for policy in shown.details.policies] == [0]
        await upload.send(make_chunk(discarded={"reset": MAX_STEPS, "env_error": 1}))
        assert isinstance(await failure(upload.ack(1)), MalformedChunk)
