"""What single actors are asked for: evaluations, over what the run asks of everybody."""

from __future__ import annotations

import asyncio
from typing import Any

from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2, session_pb2

from learner.link.commands import Assign, EndEvaluation, StartEvaluation
from learner.link.evaluation import Order
from tests.learner.service.harness import Actor, Learner, async_test, eventually, running

LEARN, IDLE = policy_pb2.ASSIGNMENT_ROLE_LEARN, policy_pb2.ASSIGNMENT_ROLE_IDLE


async def next_assignment(call: Any) -> policy_pb2.Assignment:
    """The next one of a subscription."""
    async with asyncio.timeout(20):
        while True:
            message = await call.read()
            if message.WhichOneof("message") == "assignment":
                found: policy_pb2.Assignment = message.assignment
                return found


def gravity(learner: Learner, value: float) -> None:
    """Changes a parameter of everybody's environments, and wants them reset."""
    assignment = policy_pb2.Assignment(reset=policy_pb2.RESET_MODE_NOW)
    assignment.environment_parameters["gravity"].constant = value
    learner.commands.send(Assign(assignment))


async def order(learner: Learner, actor: Actor) -> Order:
    """Orders three episodes of version 0."""
    ordered = Order(actor.session_id, 3, {"CartPole": (1, 0)}, is_deterministic=True)
    learner.commands.send(StartEvaluation(ordered))
    await eventually(lambda: ordered.assignment_id > 0)
    return ordered


@async_test
async def test_one_actor_is_ordered_an_evaluation_and_the_others_hear_nothing() -> None:
    """The order has its number, version and mode, and the parameters of the run; then the actor is let go."""
    async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port, "b") as other:
        for each in (actor, other):
            await each.open()
            await each.declare()
        call, others = actor.subscribe(), other.subscribe()
        gravity(learner, 9.5)
        await next_assignment(call)
        ordered = await order(learner, actor)
        told = await next_assignment(call)
        assert (told.id, told.episodes, told.reset) == (ordered.assignment_id, 3, policy_pb2.RESET_MODE_NONE)
        assert told.environment_parameters["gravity"].constant == 9.5
        entry = told.behaviors[0]
        assert (entry.role, entry.purpose, entry.deterministic) == (LEARN, Purpose.EVALUATE, True)
        assert (entry.generation, entry.version) == (1, 0)
        learner.commands.send(EndEvaluation(actor.session_id))
        after = await next_assignment(call)
        assert (after.id > told.id, after.episodes, after.behaviors[0].purpose) == (True, 0, 0)
        gravity(learner, 1.5)
        assert [(await next_assignment(others)).environment_parameters["gravity"].constant for _ in range(2)] == [
            9.5,
            1.5,
        ]


@async_test
async def test_what_changes_for_everybody_waits_until_an_evaluation_is_over() -> None:
    """A new lesson reaches an actor that evaluates when it is let go, and one that subscribes again is told the same."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        call = actor.subscribe()
        ordered = await order(learner, actor)
        await next_assignment(call)
        gravity(learner, 2.5)
        again = actor.subscribe()
        told = await next_assignment(again)
        assert (told.id, len(told.environment_parameters)) == (ordered.assignment_id, 0)
        learner.commands.send(EndEvaluation(actor.session_id))
        after = await next_assignment(again)
        assert after.id > told.id
        assert after.environment_parameters["gravity"].constant == 2.5


@async_test
async def test_an_actor_that_comes_back_goes_on_with_its_order() -> None:
    """After a break its session tells it the same, although everybody else was told something newer meanwhile."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        ordered = await order(learner, actor)
        gravity(learner, 2.5)
        resume = session_pb2.ResumeSession(session_id=actor.session_id, epoch=actor.epoch, generation=1)
        told = (await actor.open(resume=resume)).assignment
        assert (told.id, told.episodes) == (ordered.assignment_id, 3)
        assert {entry.purpose for entry in told.behaviors} == {Purpose.EVALUATE}


@async_test
async def test_where_nothing_is_trained_all_are_told_so_as_they_declare() -> None:
    """Each behavior id has its entry, also one that is declared after the subscription; orders end there again."""
    task = policy_pb2.BehaviorAssignment(role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.IDLE))
    async with running(task=task) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        call = actor.subscribe()
        assert not (await next_assignment(call)).behaviors
        await actor.declare()
        await actor.declare(team=1)
        told = await next_assignment(call)
        while len(told.behaviors) < 2:
            told = await next_assignment(call)
        assert [(entry.team, entry.role) for entry in told.behaviors] == [(0, IDLE), (1, IDLE)]
        await order(learner, actor)
        assert {entry.purpose for entry in (await next_assignment(call)).behaviors} == {Purpose.EVALUATE}
        learner.commands.send(EndEvaluation(actor.session_id))
        assert {entry.role for entry in (await next_assignment(call)).behaviors} == {IDLE}


@async_test
async def test_credit_of_an_actor_that_evaluates_is_for_the_others() -> None:
    """What it had in reserve is granted to the other one, and it gets its share again when it comes back."""
    async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port, "b") as other:
        await actor.join()
        call = actor.subscribe()
        learner.pace(ahead_limit_steps=1000)
        await other.join()
        sessions = {session.session_id: session.accounts[0] for session in learner.sessions.live()}
        ours, theirs = sessions[actor.session_id], sessions[other.session_id]
        await eventually(lambda: theirs.step_share.reserved > 0 or ours.step_share.reserved > 0)
        before = theirs.granted_steps
        await order(learner, actor)
        await next_assignment(call)
        await eventually(lambda: theirs.step_share.reserved >= 900)
        assert theirs.granted_steps > before
        learner.commands.send(EndEvaluation(actor.session_id))
        await next_assignment(call)
        assert learner.server.incidents == 0


@async_test
async def test_an_order_for_an_actor_that_has_gone_is_no_fault() -> None:
    """Nothing is sent, and the order keeps the number 0."""
    async with running() as learner:
        ordered = Order("nobody", 1, {}, is_deterministic=False)
        learner.commands.send(StartEvaluation(ordered))
        learner.commands.send(EndEvaluation("nobody"))
        await asyncio.sleep(0)
        assert ordered.assignment_id == 0
