"""Quotas on real sockets: who has one, and what changes it."""

from __future__ import annotations

import pytest
from rollcast.enums import HoldReason
from rollcast.v1 import trajectory_pb2

from learner.link.matches import Match
from learner.link.to_front import EndEvaluation, StartMatch
from learner.service.ingest.quotas import Quotas
from learner.service.ingest.session import ActorSession
from tests.learner.service.calls.harness import Actor, Learner, Upload, eventually, running
from tests.learner.service.calls.samples import make_chunk

STEPS = 96


async def quota(upload: Upload, expected: int) -> trajectory_pb2.Credit:
    """Reads until a quota comes."""
    while True:
        for credit in (await upload.until("ack")).credit:
            if credit.HasField("quota_through") and credit.quota_through == expected:
                return trajectory_pb2.Credit.FromString(credit.SerializeToString())


def begin(learner: Learner) -> None:
    """Lets the trainer ask for updates of so many steps."""
    learner.pace(update_steps=STEPS, ahead_limit_steps=2 * STEPS)


async def test_who_follows_quotas_gets_them() -> None:
    """The quota is the credit in steps; an actor that does not know quotas has credit alone, as before."""
    async with running() as learner, Actor(learner.server.port, "a") as actor, Actor(learner.server.port, "b") as older:
        upload, other = await actor.join(agents=8, follows_quota=True), await older.join(agents=8)
        begin(learner)
        assert (await quota(upload, STEPS)).steps_through == STEPS
        credit = (await other.until("ack")).credit[0]
        assert not credit.HasField("quota_through")
        assert credit.steps_through > 0


async def test_quotas_follow_the_actors_that_are_here() -> None:
    """A second actor takes half, and when its connection breaks, the first one takes all that is missing."""
    async with running() as learner, Actor(learner.server.port, "a") as actor:
        upload = await actor.join(agents=8, follows_quota=True)
        begin(learner)
        await quota(upload, STEPS)
        async with Actor(learner.server.port, "b") as leaving:
            other = await leaving.join(agents=8, follows_quota=True)
            await quota(upload, STEPS // 2)
            await other.deliver(make_chunk(16))
        await quota(upload, STEPS - 16)


async def test_the_next_quota_comes_with_the_hold() -> None:
    """After an update the hold until its version precedes the new quota, so that no step is taken too early."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join(agents=8, follows_quota=True)
        begin(learner)
        await quota(upload, STEPS)
        await upload.deliver(*(make_chunk(24, sequence=sequence) for sequence in range(1, 5)))
        learner.trainers.take()
        learner.pace(update_steps=STEPS, hold=HoldReason.UPDATING, until_version=1)
        learner.trainers.settle(trained=STEPS)
        kinds: list[str] = []
        while not kinds or kinds[-1] != "quota":
            response = await upload.read()
            if response.WhichOneof("message") == "hold":
                kinds.append("hold")
            elif any(credit.quota_through == 2 * STEPS for credit in response.ack.credit):
                kinds.append("quota")
        assert kinds == ["hold", "quota"]


async def test_an_actor_that_evaluates_has_no_part() -> None:
    """The others take its part, and share it again when it returns."""
    async with running() as learner, Actor(learner.server.port, "a") as one, Actor(learner.server.port, "b") as two:
        uploads = [await actor.join(agents=8, follows_quota=True) for actor in (one, two)]
        begin(learner)
        for upload in uploads:
            await quota(upload, STEPS // 2)
        learner.link.to_front.send(StartMatch(Match(1, one.session_id, episodes=3, versions={"CartPole": (1, 0)})))
        await quota(uploads[0], 0)
        await quota(uploads[1], STEPS)
        learner.link.to_front.send(EndEvaluation(one.session_id))
        await quota(uploads[0], STEPS // 2)
        await quota(uploads[1], STEPS // 2)


async def test_without_quotas_a_chunk_costs_nothing_for_each_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a trainer asks for no exact updates, chunks, connections and seconds lead to no look at all sessions."""
    looks = []

    def look(*_args: object, **_options: object) -> list[ActorSession]:
        looks.append(True)
        return []

    monkeypatch.setattr(Quotas, "_assign", look)
    async with running() as learner, Actor(learner.server.port, "a") as actor:
        upload = await actor.join(follows_quota=True)
        learner.pace(ahead_limit_steps=2 * STEPS)
        await upload.deliver(make_chunk(3))
        learner.server._router.tick()
        assert not looks
        begin(learner)
        await eventually(lambda: bool(looks))
