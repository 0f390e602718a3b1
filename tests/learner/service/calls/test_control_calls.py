"""Tests ControlService at its loopback address."""

from __future__ import annotations

from dataclasses import replace

import grpc
from rollcast.errors import CheckpointFailed, NothingToSave
from rollcast.v1 import control_pb2, session_pb2

from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.view import Bottleneck
from tests.learner.service.calls.harness import Actor, failure, operator, running
from tests.learner.service.calls.samples import make_chunk, make_policy


async def test_status_shows_the_run_and_its_actors() -> None:
    """Status has the run's state and each actor's books, policies, credit and connection."""
    async with running() as learner, Actor(learner.server.port, "mine") as actor, operator(learner) as control:
        upload = await actor.join()
        await upload.send(make_chunk(4))
        await upload.ack(1)
        policy = session_pb2.PolicyReport(generation=1, version=3)
        await actor.renew(books=[session_pb2.ActorBooks(produced_steps=6, acked_steps=4)], policies=[policy])
        status = await control.Status(control_pb2.StatusRequest())
        assert (status.run_id, status.state) == ("run", control_pb2.RUN_STATE_TRAINING)
        assert status.server_version == "test"
        (shown,) = status.actors
        assert (shown.actor_name, shown.actor_index, shown.connected) == ("mine", 0, True)
        assert (shown.books[0].produced_steps, shown.books[0].acked_steps) == (6, 4)
        assert shown.policies[0].version == 3
        assert shown.credit_steps == 9 - 6
        assert not shown.HasField("wait_ratio")
        assert not shown.HasField("round_trip_seconds")


async def test_status_shows_where_the_time_goes() -> None:
    """Status has the verdict with its figures, and each actor's waits, round trip and lag."""
    async with running() as learner, Actor(learner.server.port) as actor, operator(learner) as control:
        await actor.join()
        learner.publish(make_policy(5))
        learner.hooks.view = replace(
            learner.hooks.view,
            behaviors=(BehaviorState("CartPole", version=5),),
            bottleneck=Bottleneck("network", "network-bound: so it is", 0.1, 0.2, 0.7),
        )
        policy = session_pb2.PolicyReport(generation=1, version=3)
        for wall in (1.0, 2.0):
            times = session_pb2.ActorTimes(wall_seconds=wall, policy_seconds=wall / 4, round_trip_seconds=0.5)
            await actor.renew(policies=[policy], times=times)
        learner.publish(make_policy(9))  # versions that came since say nothing of what the actor has now
        status = await control.Status(control_pb2.StatusRequest())
        (shown,) = status.actors
        assert (shown.wait_ratio, shown.waits_for, shown.round_trip_seconds) == (0.25, "policy", 0.5)
        assert shown.lag_versions == 2
        verdict = status.verdict
        assert (verdict.bottleneck, verdict.text) == (control_pb2.BOTTLENECK_NETWORK, "network-bound: so it is")
        assert (verdict.learner_busy_ratio, verdict.actor_busy_ratio, verdict.network_ratio) == (0.1, 0.2, 0.7)


async def test_orders_reach_the_hooks() -> None:
    """Pause, resume, save and drain call the learner's hooks and return."""
    async with running() as learner, operator(learner) as control:
        await control.Pause(control_pb2.PauseRequest())
        await control.Resume(control_pb2.ResumeRequest())
        saved = await control.SaveCheckpoint(control_pb2.SaveCheckpointRequest(), timeout=10)
        await control.Drain(control_pb2.DrainRequest(final=True))
        assert saved.path == "/checkpoint after True"
        assert learner.hooks.calls == ["pause", "resume", "save", "drain True"]


async def test_a_save_that_fails_says_why() -> None:
    """A failed save returns its reason."""
    async with running() as learner, operator(learner) as control:
        expected = {
            NothingToSave("nothing was declared"): (grpc.StatusCode.FAILED_PRECONDITION, "NOTHING_TO_SAVE"),
            CheckpointFailed("the disk is full"): (grpc.StatusCode.INTERNAL, "CHECKPOINT_FAILED"),
            TimeoutError(): (grpc.StatusCode.DEADLINE_EXCEEDED, "CHECKPOINT_LATE"),
        }
        for error, (code, reason) in expected.items():
            learner.hooks.error = error
            answer = await failure(control.SaveCheckpoint(control_pb2.SaveCheckpointRequest()))
            assert (answer.code, answer.reason) == (code, reason)
