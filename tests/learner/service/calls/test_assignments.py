"""Tests assignments of single actors in addition to those of the run."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from rollcast.enums import AssignmentRole, ColumnRole, Purpose, SegmentEnd
from rollcast.trajectories import Chunk
from rollcast.v1 import policy_pb2, session_pb2

from learner.link.matches import Match
from learner.link.to_front import Assign, EndEvaluation, StartMatch
from tests.learner.service.calls.harness import Actor, Learner, eventually, running
from tests.learner.service.calls.samples import make_chunk

LEARN, IDLE = policy_pb2.ASSIGNMENT_ROLE_LEARN, policy_pb2.ASSIGNMENT_ROLE_IDLE


async def next_assignment(call: Any) -> policy_pb2.Assignment:
    """Returns the next assignment of a subscription."""
    async with asyncio.timeout(300):
        while True:
            message = await call.read()
            if message.WhichOneof("message") == "assignment":
                found: policy_pb2.Assignment = message.assignment
                return found


def gravity(learner: Learner, value: float) -> None:
    """Changes a parameter of all environments with a reset."""
    assignment = policy_pb2.Assignment(reset=policy_pb2.RESET_MODE_NOW)
    assignment.environment_parameters["gravity"].constant = value
    learner.link.to_front.send(Assign(assignment))


def order(learner: Learner, actor: Actor, number: int = 7) -> None:
    """Orders three episodes of version 0."""
    match = Match(number, actor.session_id, episodes=3, versions={"CartPole": (1, 0)}, is_deterministic=True)
    learner.link.to_front.send(StartMatch(match))


def episodes_of(*assignments: int) -> Chunk:
    """Returns a chunk with an episode of each assignment."""
    chunk = make_chunk(0, segments=0)
    count = len(assignments)
    chunk.episodes = count
    chunk.columns = {
        "episode/return": np.zeros(count, np.float32),
        "episode/length": np.ones(count, np.uint32),
        "episode/agent": np.arange(count, dtype=np.uint64),
        "episode/env": np.zeros(count, np.uint32),
        "episode/episode": np.ones(count, np.uint64),
        "episode/end": np.full(count, SegmentEnd.TERMINATED, np.uint8),
        "episode/purpose": np.full(count, Purpose.EVALUATE, np.uint8),
        "episode/assignment": np.array(assignments, np.uint64),
    }
    chunk.roles = dict.fromkeys(chunk.columns, ColumnRole.EPISODE)
    return chunk


async def test_one_actor_is_ordered_an_evaluation_and_the_others_hear_nothing() -> None:
    """An order reaches one actor with number, version, mode and parameters, and is ended."""
    async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port, "b") as other:
        for each in (actor, other):
            await each.enter()
        call, others = actor.subscribe(), other.subscribe()
        gravity(learner, 9.5)
        await next_assignment(call)
        order(learner, actor)
        told = await next_assignment(call)
        assert (told.episodes, told.reset) == (3, policy_pb2.RESET_MODE_NONE)
        assert told.environment_parameters["gravity"].constant == 9.5
        entry = told.behaviors[0]
        assert (entry.role, entry.purpose, entry.deterministic) == (LEARN, Purpose.EVALUATE, True)
        assert (entry.generation, entry.version) == (1, 0)
        learner.link.to_front.send(EndEvaluation(actor.session_id))
        after = await next_assignment(call)
        assert (after.id > told.id, after.episodes, after.behaviors[0].purpose) == (True, 0, 0)
        gravity(learner, 1.5)
        assert [(await next_assignment(others)).environment_parameters["gravity"].constant for _ in range(2)] == [
            9.5,
            1.5,
        ]


async def test_what_changes_for_everybody_waits_until_an_evaluation_is_over() -> None:
    """A new lesson reaches an evaluating actor when its order ends, also after a new subscription."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.enter()
        call = actor.subscribe()
        order(learner, actor)
        ordered = await next_assignment(call)
        gravity(learner, 2.5)
        again = actor.subscribe()
        told = await next_assignment(again)
        assert (told.id, len(told.environment_parameters)) == (ordered.id, 0)
        learner.link.to_front.send(EndEvaluation(actor.session_id))
        after = await next_assignment(again)
        assert after.id > told.id
        assert after.environment_parameters["gravity"].constant == 2.5


async def test_an_actor_that_comes_back_goes_on_with_its_order() -> None:
    """An actor that reconnects gets its order again."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.enter()
        order(learner, actor)
        ordered = await next_assignment(actor.subscribe())
        gravity(learner, 2.5)
        resume = session_pb2.ResumeSession(session_id=actor.session_id, epoch=actor.epoch, generation=1)
        told = (await actor.open(resume=resume)).assignment
        assert (told.id, told.episodes) == (ordered.id, 3)
        assert {entry.purpose for entry in told.behaviors} == {Purpose.EVALUATE}


async def test_where_nothing_is_trained_all_are_told_so_as_they_declare() -> None:
    """In a run without training each declared behavior id is assigned IDLE, also after an order."""
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
        order(learner, actor)
        assert {entry.purpose for entry in (await next_assignment(call)).behaviors} == {Purpose.EVALUATE}
        learner.link.to_front.send(EndEvaluation(actor.session_id))
        assert {entry.role for entry in (await next_assignment(call)).behaviors} == {IDLE}


async def test_credit_of_an_actor_that_evaluates_is_for_the_others() -> None:
    """The reserve of an evaluating actor is granted to others until it returns."""
    async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port, "b") as other:
        await actor.join()
        call = actor.subscribe()
        learner.pace(ahead_limit_steps=1000)
        await other.join()
        sessions = {session.session_id: session.accounts[0] for session in learner.sessions.live()}
        ours, theirs = sessions[actor.session_id], sessions[other.session_id]
        await eventually(lambda: theirs.step_share.reserved > 0 or ours.step_share.reserved > 0)
        before = theirs.granted_steps
        order(learner, actor)
        await next_assignment(call)
        await eventually(lambda: theirs.step_share.reserved >= 900)
        assert theirs.granted_steps > before
        learner.link.to_front.send(EndEvaluation(actor.session_id))
        await next_assignment(call)
        assert learner.server.incidents == 0


async def test_records_come_back_with_the_number_of_the_order() -> None:
    """Records have the number of their order; those of other sessions have none."""
    async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port, "b") as other:
        upload, foreign = await actor.join(), await other.join()
        call = actor.subscribe()
        gravity(learner, 1.5)
        await next_assignment(call)
        order(learner, actor, number=9)
        sent_as = (await next_assignment(call)).id
        assert sent_as != 9
        for stream in (upload, foreign):
            await stream.send(episodes_of(sent_as, sent_as - 1, 0))
            await stream.ack(1)
        ours, theirs = (item.chunk.columns["episode/assignment"] for item in learner.trainers.take())
        assert (ours.tolist(), theirs.tolist()) == ([9, 0, 0], [0, 0, 0])
