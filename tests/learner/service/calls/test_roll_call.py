"""Tests that the trainers get changes of actors in time and in order with the experience."""

from __future__ import annotations

import asyncio
from typing import Any

from learner.link.to_trainers import Actors, Experience
from learner.shared.settings.options import RunOptions
from tests.learner.service.calls.harness import Actor, Learner, running
from tests.learner.service.calls.samples import NAME, make_chunk


async def heard(learner: Learner, heard_so_far: list[Any], condition: Any) -> Actors:
    """Receives messages as the trainers do until one is about actors, and returns the last one."""
    async with asyncio.timeout(300):
        while True:
            heard_so_far.extend(learner.link.to_trainers.receive())
            found = [message for message in heard_so_far if isinstance(message, Actors)]
            if found and condition(found[-1]):
                return found[-1]
            await asyncio.sleep(0.005)


async def test_every_change_of_a_session_is_told() -> None:
    """Openings, declarations, connects, disconnects and closings are announced."""
    messages: list[Any] = []
    async with running() as learner, Actor(learner.server.port, "walker") as actor:
        await actor.open()
        (one,) = (await heard(learner, messages, lambda told: told.actors)).actors
        assert (one.session_id, one.name, one.actor_index) == (actor.session_id, "walker", 0)
        assert (one.is_connected, one.agents, one.teams) == (False, {}, {})
        await actor.declare(team=1, agents=3)
        await actor.declare(team=0, agents=2)
        (one,) = (await heard(learner, messages, lambda told: told.actors[0].agents == {0: 5})).actors
        assert one.teams == {0: (0, 1)}
        upload = await actor.upload()
        await heard(learner, messages, lambda told: told.actors[0].is_connected)
        await upload.finish()
        await heard(learner, messages, lambda told: not told.actors[0].is_connected)
        await actor.close()
        await heard(learner, messages, lambda told: not told.actors)


async def test_what_a_lost_actor_sent_comes_before_the_word_that_it_has_gone() -> None:
    """The chunks of a lost actor arrive before the message that it has gone."""
    messages: list[Any] = []
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(*(make_chunk(3, sequence=sequence) for sequence in (1, 2, 3)))
        await actor.close()
        await heard(learner, messages, lambda told: not told.actors)
    sent = [place for place, message in enumerate(messages) if isinstance(message, Experience)]
    here = [place for place, message in enumerate(messages) if isinstance(message, Actors) and message.actors]
    assert len(sent) == 3
    assert max(sent) < messages.index(Actors(steps_taken={0: 9}))
    assert max(here) < messages.index(Actors(steps_taken={0: 9}))


async def test_steps_are_told_now_and_then() -> None:
    """Step counts are announced with the next tick if they changed."""
    messages: list[Any] = []
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk(3))
        await heard(learner, messages, lambda told: told.steps_taken == {0: 3})
        learner.server._router.tick()
        told = len([message for message in messages if isinstance(message, Actors)])
        learner.server._router.tick()
        messages.extend(learner.link.to_trainers.receive())
        assert len([message for message in messages if isinstance(message, Actors)]) == told


async def test_in_lockstep_no_chunk_overtakes_its_number_of_agents() -> None:
    """In lock-step the number of agents arrives before their first chunk."""
    options = RunOptions.model_validate({"behaviors": {NAME: {}}, "rollcast": {"lockstep": {"actors": 1}}})
    async with running(options) as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk(3, agents=4))
        messages = learner.link.to_trainers.receive()
    place = next(place for place, message in enumerate(messages) if isinstance(message, Experience))
    told = [message for message in messages[:place] if isinstance(message, Actors)]
    assert told[-1].actors[0].agents == {0: 4}
