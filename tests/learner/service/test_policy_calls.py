"""Subscriptions and pinned versions on real sockets."""

from __future__ import annotations

import asyncio

import grpc
from rollcast.policies import PolicyAssembler
from rollcast.v1 import policy_pb2, session_pb2

from learner.link.commands import Assign
from tests.learner.service.harness import Actor, async_test, eventually, failure, read_policy, running
from tests.learner.service.samples import make_options, make_policy, make_spec


@async_test
async def test_the_newest_policy_comes_first_and_then_each_new_one() -> None:
    """A subscriber gets the newest version at once, verified by its digest, and later ones as they are published."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        learner.store.publish(make_policy(0))
        learner.store.publish(make_policy(1, size=2_500_000))
        await actor.open()
        await actor.declare()
        call = actor.subscribe()
        header, payload = await read_policy(call)
        assert header.version == 1
        assembler = PolicyAssembler()
        assembler.begin(header)
        for offset in range(0, len(payload), 2**20):
            done = assembler.add(policy_pb2.PolicyFrame(offset=offset, data=payload[offset : offset + 2**20]))
        assert done is not None
        learner.store.publish(make_policy(2))
        assert (await read_policy(call))[0].version == 2


@async_test
async def test_what_the_subscriber_holds_is_not_sent_again() -> None:
    """A subscriber that names the version it holds gets only newer ones."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        learner.store.publish(make_policy(1))
        await actor.open()
        await actor.declare()
        call = actor.subscribe(policy_pb2.HeldPolicy(behavior_index=0, generation=1, version=1))
        await eventually(lambda: bool(learner.server._hub._subscriptions))
        learner.store.publish(make_policy(2))
        assert (await read_policy(call))[0].version == 2


@async_test
async def test_a_newer_generation_is_always_sent() -> None:
    """Version 3 of the last generation does not keep version 0 of this one from being sent."""
    async with running(has_policy=False, generation=2) as learner, Actor(learner.server.port) as actor:
        learner.store.publish(make_policy(0, generation=2))
        await actor.open()
        await actor.declare()
        call = actor.subscribe(policy_pb2.HeldPolicy(behavior_index=0, generation=1, version=3))
        header, _ = await read_policy(call)
        assert (header.generation, header.version) == (2, 0)


@async_test
async def test_a_behavior_declared_late_joins_the_subscription() -> None:
    """A subscription that began before the declaration carries the policy as soon as the behavior is declared."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        call = actor.subscribe()
        await eventually(lambda: bool(learner.server._hub._subscriptions))
        await actor.declare()
        learner.store.publish(make_policy(0))
        assert (await read_policy(call))[0].version == 0


@async_test
async def test_policies_of_other_behaviors_are_not_sent() -> None:
    """A session gets the policies of the behaviors that it declared, and no others."""
    options = make_options()
    options = options.model_copy(update={"default_settings": options.behaviors["CartPole"]})
    async with (
        running(options, has_policy=False) as learner,
        Actor(learner.server.port, "a") as first,
        Actor(learner.server.port, "b") as second,
    ):
        await first.open()
        await first.declare()
        await second.open()
        assert (await second.declare(make_spec("Walker"))).behavior_index == 1
        call = first.subscribe()
        learner.store.publish(make_policy(4))
        assert (await read_policy(call))[0].behavior == "CartPole"
        other = second.subscribe()
        await eventually(lambda: learner.server._hub._broadcast.subscribers == 2)
        assert all(not sub.waiting for sub in learner.server._hub._subscriptions.values())
        other.cancel()


@async_test
async def test_a_slow_subscriber_finishes_its_transfer_and_then_gets_the_newest() -> None:
    """While one large transfer stands still, twenty versions come and go: one waits, and only the newest is sent."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        size = 24_000_000
        learner.store.publish(make_policy(1, size=size))
        await actor.open()
        await actor.declare()
        call = actor.subscribe()
        header = (await call.read()).header
        assert header.version == 1
        for version in range(2, 22):
            learner.store.publish(make_policy(version))
            await asyncio.sleep(0)
        (subscription,) = learner.server._hub._subscriptions.values()
        await eventually(lambda: subscription.waiting == 1)
        payload = b""
        while len(payload) < size:
            payload += (await call.read()).frame.data
        assert payload == bytes([1]) * size
        assert (await read_policy(call))[0].version == 21


@async_test
async def test_a_second_subscription_supersedes_the_first() -> None:
    """The newer subscription of a session goes on, the older one ends with STREAM_SUPERSEDED."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        old = actor.subscribe()
        await eventually(lambda: bool(learner.server._hub._subscriptions))
        new = actor.subscribe()
        error = await failure(old.read())
        assert error.reason == "STREAM_SUPERSEDED"
        learner.store.publish(make_policy(0))
        assert (await read_policy(new))[0].version == 0


@async_test
async def test_a_subscription_ends_with_its_session() -> None:
    """A subscription ends well when its session is closed, and with SESSION_EXPIRED when its lease runs out."""
    async with (
        running(make_options(lease_seconds=0.3), has_policy=False) as learner,
        Actor(learner.server.port) as actor,
    ):
        await actor.open()
        call = actor.subscribe()
        await eventually(lambda: bool(learner.server._hub._subscriptions))
        await actor.close()
        assert await call.read() is grpc.aio.EOF
        await actor.open()
        error = await failure(actor.subscribe().read())
        assert error.reason == "SESSION_EXPIRED"


@async_test
async def test_pinned_versions() -> None:
    """GetPolicy brings a kept version, or the newest; an evicted one and an unknown behavior are NOT_FOUND."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        for version in range(1, 13):
            learner.store.publish(make_policy(version, size=2000 + version))

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


@async_test
async def test_no_assignment_comes_unless_there_is_something_to_say() -> None:
    """The first message of a subscription is the policy: an actor learns with the newest one without being told."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        learner.store.publish(make_policy(0))
        await actor.open()
        await actor.declare()
        assert (await actor.subscribe().read()).WhichOneof("message") == "header"


@async_test
async def test_assignments_come_first_and_are_sent_again_when_they_change() -> None:
    """Environment parameters of the run are assigned under id 1, with LEARN for each behavior; a change is id 2."""
    assignment = policy_pb2.Assignment()
    assignment.environment_parameters["gravity"].constant = 9.5
    async with running(has_policy=False, assignment=assignment) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        await actor.declare(team=1)
        call = actor.subscribe()
        first = (await call.read()).assignment
        assert first.id == 1
        assert first.environment_parameters["gravity"].constant == 9.5
        roles = [(entry.behavior, entry.team, entry.role) for entry in first.behaviors]
        assert roles == [("CartPole", team, policy_pb2.ASSIGNMENT_ROLE_LEARN) for team in (0, 1)]
        assignment.environment_parameters["gravity"].constant = 1.5
        learner.commands.send(Assign(assignment))
        second = (await call.read()).assignment
        assert (second.id, second.environment_parameters["gravity"].constant) == (2, 1.5)


@async_test
async def test_openings_carry_the_present_assignment() -> None:
    """A simulator knows its parameters before its first step; only who may have missed a reset is told to reset."""
    assignment = policy_pb2.Assignment(settings_revision=3, parameter_order=["gravity"])
    assignment.environment_parameters["gravity"].constant = 9.5
    async with running(assignment=assignment) as learner, Actor(learner.server.port) as actor:
        told = (await actor.open()).assignment
        assert (told.id, told.settings_revision, list(told.parameter_order)) == (1, 3, ["gravity"])
        assignment.reset = policy_pb2.RESET_MODE_NOW
        learner.commands.send(Assign(assignment))
        resume = session_pb2.ResumeSession(session_id=actor.session_id, epoch=actor.epoch, generation=1)
        again = await actor.open(resume=resume)
        assert (again.resumed, again.assignment.id) == (True, 2)
        assert again.assignment.reset == policy_pb2.RESET_MODE_NOW
        async with Actor(learner.server.port, "late") as late:
            told = (await late.open()).assignment
        assert (told.id, told.reset) == (2, policy_pb2.RESET_MODE_NONE)
        assert told.environment_parameters["gravity"].constant == 9.5


@async_test
async def test_an_opening_without_parameters_asks_for_nothing() -> None:
    """Its assignment has id 0, which says: learn."""
    async with running() as learner, Actor(learner.server.port) as actor:
        assert (await actor.open()).assignment == policy_pb2.Assignment()
