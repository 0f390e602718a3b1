"""Tests that no actor's claims or bursts keep the others from training, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from rollcast.auth import Role
from rollcast.v1 import session_pb2

from learner.link.to_front import Pace
from learner.service.ingest.behaviors import MAX_CLAIMED_AGENTS
from learner.shared.settings.options import RunOptions
from tests.learner.service.calls.harness import Actor, Learner, eventually, running
from tests.learner.service.calls.samples import NAME, make_chunk
from tests.learner.service.calls.test_identity import identity
from tests.learner.service.identity.certificates import Folder

BUFFER_STEPS = 512
UPDATES = 40
HORIZON = 8
CLAIM = 2**20


async def stream(actor: Actor, rows: int, *, agents: int) -> None:
    """Sends all that credit allows, for ever."""
    upload = await actor.join()
    if agents > 1:
        await actor.renew(books=[session_pb2.ActorBooks(agents=agents)])
    sent, sequence, granted = 0, 0, 0
    while True:
        response = await upload.read()
        for credit in response.ack.credit:
            granted = max(granted, credit.steps_through)
        while sent + rows <= granted:
            sequence, sent = sequence + 1, sent + rows
            await upload.send(make_chunk(rows, sequence=sequence, produced_steps=sent, agents=agents))


async def train(learner: Learner) -> int:
    """Trains some updates; returns the most steps that waited."""
    most = 0
    for _ in range(UPDATES):
        await eventually(lambda: learner.ledger.books(NAME).queued >= BUFFER_STEPS)
        await asyncio.sleep(0.02)  # an update takes a while, in which actors send
        most = max(most, learner.ledger.books(NAME).queued)
        learner.trainers.take()
        trained = learner.ledger.books(NAME).trained + BUFFER_STEPS
        learner.trainers.settle(trained=BUFFER_STEPS, pace=Pace(ahead_limit_steps=2 * BUFFER_STEPS + 1))
        await eventually(lambda trained=trained: learner.ledger.books(NAME).trained == trained)  # type: ignore[misc]
    return most


@pytest.mark.parametrize(("hogs", "least_share"), [(["other"], 0.1), (["other"] * 3, 0.1), (["lab"], 0.0)])
async def test_claimed_agents_leave_the_others_their_share(tmp_path: Path, hogs: list[str], least_share: float) -> None:
    """Whatever another principal claims, an actor has a part of each update; of its own principal, it is never shut out."""
    folder = Folder.make(tmp_path, lab=Role.ACTOR, other=Role.ACTOR)
    async with contextlib.AsyncExitStack() as stack:
        settings = {"time_horizon": HORIZON, "hyperparameters": {"buffer_size": BUFFER_STEPS, "batch_size": 64}}
        options = RunOptions.model_validate({"behaviors": {NAME: settings}})
        learner = await stack.enter_async_context(running(options, identity=identity(folder)))
        names = [("honest", "lab", 16, 1), *((f"hog {n}", owner, 256, CLAIM) for n, owner in enumerate(hogs))]
        for name, owner, rows, agents in names:
            actor = Actor(learner.server.port, name, token=folder.tokens[owner])
            await stack.enter_async_context(actor)
            task = asyncio.create_task(stream(actor, rows, agents=agents))
            stack.callback(task.cancel)
        most = await train(learner)  # also what was sent while there was no competition
        (honest,) = (session for session in learner.sessions.live() if session.actor_name == "honest")
        before = honest.accounts[0].received_steps
        await train(learner)
        received = honest.accounts[0].received_steps - before
        assert most <= 2 * BUFFER_STEPS + MAX_CLAIMED_AGENTS * (HORIZON + 1) + 256, (
            "whatever number of actors claims it"
        )
        assert received > least_share * UPDATES * BUFFER_STEPS, f"{received} steps of {UPDATES} updates"
