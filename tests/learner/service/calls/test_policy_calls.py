"""Tests subscriptions and pinned versions on real sockets."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from rollcast.errors import VersionEvicted
from rollcast.policies import PolicyAssembler
from rollcast.v1 import policy_pb2, session_pb2

from learner.link.to_front import Assign, Policy, Release
from tests.learner.service.calls.harness import Actor, eventually, failure, read_policy, running
from tests.learner.service.calls.samples import NAME, make_policy, make_spec
from tests.learner.service.ingest.parts import open_default


async def test_the_newest_policy_comes_first_and_then_each_new_one() -> None:
    """A subscriber gets the newest version first and then each new one, with a valid digest."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        learner.publish(make_policy(0))
        learner.publish(make_policy(1, size=2_500_000))
        await actor.enter()
        call = actor.subscribe()
        header, payload = await read_policy(call)
        assert header.version == 1
        assembler = PolicyAssembler()
        assembler.begin(header)
        for offset in range(0, len(payload), 2**20):
            done = assembler.add(policy_pb2.PolicyFrame(offset=offset, data=payload[offset : offset + 2**20]))
        assert done is not None
        learner.publish(make_policy(2))
        assert (await read_policy(call))[0].version == 2


@pytest.mark.parametrize(("held", "sent"), [((2, 1), 2), ((1, 3), 1)])
async def test_what_the_subscriber_holds_is_not_sent_again(held: tuple[int, int], sent: int) -> None:
    """A subscriber gets versions newer than the one it holds, and a newer generation whatever its version."""
    async with running(has_policy=False, generation=2) as learner, Actor(learner.server.port) as actor:
        learner.publish(make_policy(1, generation=2))
        await actor.enter()
        generation, version = held
        call = actor.subscribe(policy_pb2.HeldPolicy(behavior_index=0, generation=generation, version=version))
        await eventually(lambda: bool(learner.server._router._subscriptions))
        if sent > 1:
            learner.publish(make_policy(2, generation=2))
        header, _ = await read_policy(call)
        assert (header.generation, header.version) == (2, sent)


async def test_policies_of_other_behaviors_are_not_sent() -> None:
    """A session gets only policies of its declared behaviors."""
    options = open_default()
    async with (
        running(options, has_policy=False) as learner,
        Actor(learner.server.port, "a") as first,
        Actor(learner.server.port, "b") as second,
    ):
        await first.enter()
        await second.open()
        assert (await second.declare(make_spec("Walker"))).behavior_index == 1
        call = first.subscribe()
        learner.publish(make_policy(4))
        assert (await read_policy(call))[0].behavior == "CartPole"
        other = second.subscribe()
        await eventually(lambda: learner.server._router._broadcast.subscribers == 2)
        assert all(not sub.waiting for sub in learner.server._router._subscriptions.values())
        other.cancel()


async def test_a_slow_subscriber_finishes_its_transfer_and_then_gets_the_newest() -> None:
    """During a slow transfer only the newest of later versions waits."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        size = 24_000_000
        learner.publish(make_policy(1, size=size))
        await actor.enter()
        call = actor.subscribe()
        header = (await call.read()).header
        assert header.version == 1
        for version in range(2, 22):
            learner.publish(make_policy(version))
            await asyncio.sleep(0)
        (subscription,) = learner.server._router._subscriptions.values()
        await eventually(lambda: subscription.waiting == 1)
        payload = b""
        while len(payload) < size:
            payload += (await call.read()).frame.data
        assert payload == bytes([1]) * size
        assert (await read_policy(call))[0].version == 21


async def test_a_second_subscription_supersedes_the_first() -> None:
    """A newer subscription ends the older one with STREAM_SUPERSEDED."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        await actor.enter()
        old = actor.subscribe()
        await eventually(lambda: bool(learner.server._router._subscriptions))
        new = actor.subscribe()
        error = await failure(old.read())
        assert error.reason == "STREAM_SUPERSEDED"
        learner.publish(make_policy(0))
        assert (await read_policy(new))[0].version == 0


async def test_a_subscription_ends_with_its_session() -> None:
    """A subscription ends with OK when its session closes and with SESSION_EXPIRED when the lease ends."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        call = actor.subscribe()
        await eventually(lambda: bool(learner.server._router._subscriptions))
        await actor.close()
        assert await call.read() is grpc.aio.EOF
        await actor.open()
        call = actor.subscribe()
        await eventually(lambda: bool(learner.server._router._subscriptions))
        learner.end_lease(actor)
        assert (await failure(call.read())).reason == "SESSION_EXPIRED"


async def test_pinned_versions() -> None:
    """GetPolicy returns a kept or the newest version; others are NOT_FOUND."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        await actor.enter()
        for version in range(1, 13):
            learner.publish(make_policy(version, size=2000 + version))

        def get(**fields: object) -> object:
            request = policy_pb2.GetPolicyRequest(session_id=actor.session_id, **fields)  # type: ignore[arg-type]
            return actor.policies.GetPolicy(request)

        header, payload = await read_policy(get(behavior="CartPole", version=7))
        assert (header.version, payload) == (7, bytes([7]) * 2007)
        assert (await read_policy(get(behavior="CartPole")))[0].version == 12
        error = await failure(get(behavior="CartPole", version=2).read())  # type: ignore[attr-defined]
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "VERSION_EVICTED")
        assert "versions 5 to 12" in error.message
        error = await failure(get(behavior="Walker").read())  # type: ignore[attr-defined]
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_BEHAVIOR")
        error = await failure(actor.policies.GetPolicy(policy_pb2.GetPolicyRequest(session_id="stranger")).read())
        assert error.reason == "SESSION_EXPIRED"


async def test_assignments_come_first_and_are_sent_again_when_they_change() -> None:
    """Parameters are assigned under id 1, and a change is sent as id 2."""
    assignment = policy_pb2.Assignment()
    assignment.environment_parameters["gravity"].constant = 9.5
    async with running(has_policy=False, assignment=assignment) as learner, Actor(learner.server.port) as actor:
        await actor.enter()
        await actor.declare(team=1)
        call = actor.subscribe()
        first = (await call.read()).assignment
        assert first.id == 1
        assert first.environment_parameters["gravity"].constant == 9.5
        roles = [(entry.behavior, entry.team, entry.role) for entry in first.behaviors]
        assert roles == [("CartPole", team, policy_pb2.ASSIGNMENT_ROLE_LEARN) for team in (0, 1)]
        assignment.environment_parameters["gravity"].constant = 1.5
        learner.link.to_front.send(Assign(assignment))
        second = (await call.read()).assignment
        assert (second.id, second.environment_parameters["gravity"].constant) == (2, 1.5)


async def test_openings_carry_the_present_assignment() -> None:
    """The answer to an opening has the current assignment, with a reset only if one was missed."""
    assignment = policy_pb2.Assignment(settings_revision=3, parameter_order=["gravity"])
    assignment.environment_parameters["gravity"].constant = 9.5
    async with running(assignment=assignment) as learner, Actor(learner.server.port) as actor:
        told = (await actor.open()).assignment
        assert (told.id, told.settings_revision, list(told.parameter_order)) == (1, 3, ["gravity"])
        assignment.reset = policy_pb2.RESET_MODE_NOW
        learner.link.to_front.send(Assign(assignment))
        resume = session_pb2.ResumeSession(session_id=actor.session_id, epoch=actor.epoch, generation=1)
        again = await actor.open(resume=resume)
        assert (again.resumed, again.assignment.id) == (True, 2)
        assert again.assignment.reset == policy_pb2.RESET_MODE_NOW
        async with Actor(learner.server.port, "late") as late:
            told = (await late.open()).assignment
        assert (told.id, told.reset) == (2, policy_pb2.RESET_MODE_NONE)
        assert told.environment_parameters["gravity"].constant == 9.5


async def test_without_parameters_nothing_is_assigned() -> None:
    """Without parameters the assignment of an opening has id 0: learn, and a subscription starts with the policy."""
    async with running() as learner, Actor(learner.server.port) as actor:
        assert (await actor.open()).assignment == policy_pb2.Assignment()
        await actor.declare()
        assert (await actor.subscribe().read()).WhichOneof("message") == "header"


async def test_a_kept_version_can_be_had_until_it_is_released() -> None:
    """A kept version is available until it is released, and broadcast once."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.enter()
        learner.publish(make_policy(1))
        learner.link.to_front.send(Policy(make_policy(1), keep=True))
        for version in range(2, 20):
            learner.publish(make_policy(version))
        request = policy_pb2.GetPolicyRequest(session_id=actor.session_id, behavior=NAME, generation=1, version=1)
        header, _ = await read_policy(actor.policies.GetPolicy(request))
        assert header.version == 1
        learner.link.to_front.send(Release(NAME))
        error = await failure(read_policy(actor.policies.GetPolicy(request)))
        assert isinstance(error, VersionEvicted)


async def test_a_behavior_declared_late_joins_the_open_streams() -> None:
    """A behavior declared during a subscription and an upload gets its policies and credit on them."""
    async with running(open_default(), has_policy=False) as learner, Actor(learner.server.port) as actor:
        upload, call = await actor.join(), actor.subscribe()
        await eventually(lambda: bool(learner.server._router._subscriptions))
        declared = await actor.declare(make_spec("Walker"))
        assert [entry.behavior_index for entry in (await upload.until("ack")).credit] == [declared.behavior_index]
        learner.publish(make_policy(0, name="Walker"))
        assert (await read_policy(call))[0].behavior == "Walker"
