"""SessionService on real sockets: open, declare, renew, close."""

from __future__ import annotations

import asyncio
import math
import threading
import time

import grpc
import pytest
from rollcast.specs import BehaviorSpec
from rollcast.v1 import session_pb2

from learner.ingest.sessions import MAX_TEAMS
from learner.link.footprint import Footprint
from learner.settings.options import RunOptions
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings
from tests.learner.service.harness import Actor, async_test, eventually, failure, running
from tests.learner.service.samples import make_options, make_spec


@async_test
async def test_open_answers_with_the_run() -> None:
    """An opening answers with the run, the place, the lease and the limits of the run file."""
    async with running(make_options(lease_seconds=9)) as learner, Actor(learner.server.port) as actor:
        opened = await actor.open()
        assert (opened.run_id, opened.generation, opened.run_seed, opened.actor_index) == ("run", 1, 7, 0)
        assert (opened.lease_ms, opened.next_sequence, opened.resumed) == (9000, 1, False)
        assert opened.limits.max_chunk_bytes == 4 * 2**20
        assert opened.limits.max_chunk_age_ms == 25
        assert list(opened.behaviors) == ["CartPole"]
        assert opened.engine_settings.time_scale == 20
        assert opened.environment_settings.num_areas == 1


@async_test
async def test_opening_twice_is_harmless() -> None:
    """An actor that repeats an opening whose answer was lost gets the same session under a new epoch."""
    async with running() as learner, Actor(learner.server.port) as actor:
        first, second = await actor.open(), await actor.open()
        assert second.session_id == first.session_id
        assert second.epoch == first.epoch + 1
        assert len(learner.sessions.live()) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"protocol_revision": 0}, "PROTOCOL_TOO_OLD"),
        ({"actor_name": ""}, "BAD_REQUEST"),
        ({"actor_name": "x" * 300}, "BAD_REQUEST"),
        ({"actor_name": "line\nbreak"}, "BAD_REQUEST"),
        ({"instance_id": "no uuid"}, "BAD_REQUEST"),
    ],
)
@async_test
async def test_bad_openings_are_refused(fields: dict[str, object], reason: str) -> None:
    """An opening with a field out of bounds is refused with the reason."""
    async with running() as learner, Actor(learner.server.port) as actor:
        assert (await failure(actor.open(**fields))).reason == reason
        assert not learner.sessions.live()


@async_test
async def test_a_full_learner_says_when_to_come_back() -> None:
    """Above max_sessions an opening is refused with the limit and a time to wait."""
    async with (
        running(make_options(max_sessions=1)) as learner,
        Actor(learner.server.port, "a") as first,
        Actor(learner.server.port, "b") as second,
    ):
        await first.open()
        error = await failure(second.open())
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.reason == "TOO_MANY_SESSIONS"
        assert error.retry_after_seconds is not None
        assert error.metadata["max_sessions"] == "1"
        await first.close()
        await second.open()


@async_test
async def test_declaration_answers_with_the_run_file() -> None:
    """A declaration answers with how the learner wants segments, again with the same index."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        declared = await actor.declare()
        assert (declared.behavior_index, declared.time_horizon, declared.max_policy_lag) == (0, 8, 4)
        assert declared.training
        assert not declared.cut_at_swap
        assert (await actor.declare(team=1)).behavior_index == 0
        assert [behavior.name for behavior in learner.behaviors.take_new()] == ["CartPole"]


@async_test
async def test_an_actor_that_waits_for_a_judgement_is_not_lost() -> None:
    """A judgement may take longer than a lease, and other calls are answered meanwhile."""
    may_answer = threading.Event()

    def judge(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        del spec, settings, service
        assert may_answer.wait(20.0)
        return Footprint(ring_rows=1, row_bytes=1)

    async with (
        running(make_options(lease_seconds=0.3), judge_declaration=judge) as learner,
        Actor(learner.server.port) as actor,
        Actor(learner.server.port, "other") as other,
    ):
        await actor.open()
        declared = asyncio.create_task(actor.declare())
        await asyncio.sleep(1.0)
        await other.open()
        assert not declared.done()
        may_answer.set()
        assert (await declared).behavior_index == 0


@async_test
async def test_judgements_hold_up_neither_known_declarations_nor_each_other_for_long() -> None:
    """One is made at a time; a behavior that is there waits for none, and the threads that encode policies are free."""
    may_answer, at_once, most = threading.Event(), 0, 0

    def judge(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        nonlocal at_once, most
        del settings, service
        at_once += 1
        most = max(most, at_once)
        assert spec.name == "Known" or may_answer.wait(20.0)
        at_once -= 1
        return Footprint(ring_rows=1, row_bytes=1)

    options = RunOptions.model_validate({"default_settings": {"time_horizon": 8}})
    async with (
        running(options, judge_declaration=judge) as learner,
        Actor(learner.server.port) as actor,
        Actor(learner.server.port, "other") as other,
    ):
        await actor.open()
        await other.open()
        await other.declare(make_spec("Known"))
        names = [f"New{number}" for number in range(40)]  # more than a pool of threads has
        declared = [asyncio.create_task(actor.declare(make_spec(name))) for name in names]
        await asyncio.sleep(0.5)
        assert (await other.declare(make_spec("Known"))).behavior_index == 0
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "encoded"), 10.0) == "encoded"
        assert not any(each.done() for each in declared)
        may_answer.set()
        assert len({(await each).behavior_index for each in declared}) == len(names)
        assert most == 1


@async_test
async def test_spec_mismatch_shows_both_sides() -> None:
    """An actor whose spec differs from the run's first one is told what differs, with both sides."""
    async with (
        running() as learner,
        Actor(learner.server.port, "a") as first,
        Actor(learner.server.port, "b") as second,
    ):
        await first.open()
        await first.declare()
        await second.open()
        error = await failure(second.declare(make_spec(size=6)))
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION
        assert error.reason == "SPEC_MISMATCH"
        assert "obs/state: run float32[4], actor float32[6]" in error.message
        assert error.metadata["differences"] in error.message


@async_test
async def test_unknown_behavior_names_the_known_ones() -> None:
    """A behavior that the run file lacks is refused with the names that it has."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        error = await failure(actor.declare(make_spec("Walker")))
        assert error.reason == "UNKNOWN_BEHAVIOR"
        assert "CartPole" in error.message


@async_test
async def test_a_broken_spec_is_refused() -> None:
    """A spec without observations is BAD_SPEC."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        request = session_pb2.DeclareBehaviorRequest(session_id=actor.session_id, epoch=actor.epoch)
        request.spec.name = "CartPole"
        error = await failure(actor.call(actor.sessions.DeclareBehavior, request))
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_SPEC")


@async_test
async def test_calls_of_strangers_are_refused() -> None:
    """A session that nobody opened is SESSION_EXPIRED, in every call."""
    async with running() as learner, Actor(learner.server.port) as actor:
        actor.session_id, actor.epoch = "stranger", 1
        for call in (actor.renew(), actor.close(), actor.declare()):
            error = await failure(call)
            assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED")


@async_test
async def test_an_older_epoch_is_fenced() -> None:
    """After a session was opened again, the older opening can do nothing with it."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        old_epoch = actor.epoch
        await actor.open()
        actor.epoch = old_epoch
        error = await failure(actor.renew())
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_FENCED")


@async_test
async def test_renewal_keeps_a_short_lease_and_silence_ends_it() -> None:
    """A session outlives its lease several times while it is renewed, and ends soon after it falls silent."""
    async with running(make_options(lease_seconds=0.3)) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        born = learner.sessions.clock()
        while learner.sessions.clock() < born + 0.9:
            assert (await actor.renew()).lease_ms == 300
        await eventually(lambda: not learner.sessions.live())
        assert (await failure(actor.renew())).reason == "SESSION_EXPIRED"
        assert learner.metric("rollcast_learner_sessions_expired_total") == 1


@async_test
async def test_reports_are_kept_for_the_operator() -> None:
    """What an actor reports in renewals and on leaving is counted as steps taken, after its end too."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        books = session_pb2.ActorBooks(behavior_index=0, produced_steps=40, open_steps=40, agents=1)
        await actor.renew(books=[books], policies=[session_pb2.PolicyReport(version=3, error="no such op")])
        assert learner.sessions.steps_taken(0) == 40
        assert learner.sessions.live()[0].policies[0].error == "no such op"
        books.produced_steps = 50
        await actor.close(books=[books])
        assert not learner.sessions.live()
        assert learner.sessions.steps_taken(0) == 50


@async_test
async def test_absurd_counters_are_refused() -> None:
    """A counter that no actor can reach is refused instead of entering sums."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        books = session_pb2.ActorBooks(behavior_index=0, produced_steps=2**64 - 1)
        assert (await failure(actor.renew(books=[books]))).reason == "BAD_REQUEST"
        assert learner.sessions.steps_taken(0) == 0


@async_test
async def test_times_are_kept_and_reports_are_asked_for() -> None:
    """Each answer says when the next report is wanted; an actor that leaves its times out is not made to send them."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        assert (await actor.renew()).report_ms == 2000
        (session,) = learner.sessions.live()
        assert session.times.reported_at is None
        for wall, held in ((1.0, 0.0), (3.0, 0.5)):
            await actor.renew(times=session_pb2.ActorTimes(wall_seconds=wall, hold_seconds=held))
        assert (session.times.wait_share, session.times.waits_for) == (0.25, "hold")


@pytest.mark.parametrize("seconds", [math.nan, -1.0, math.inf, 1e300])
@async_test
async def test_absurd_times_are_refused(seconds: float) -> None:
    """Times that no clock can show are refused, with the books that came with them."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare()
        books = session_pb2.ActorBooks(produced_steps=5, unacked_steps=5)
        for field in ("wall_seconds", "credit_seconds", "round_trip_seconds"):
            times = session_pb2.ActorTimes(**{field: seconds})
            refused = await failure(actor.renew(books=[books], times=times))
            assert (refused.reason, refused.metadata["field"]) == ("BAD_REQUEST", f"times.{field}")
        assert learner.sessions.steps_taken(0) == 0
        assert learner.sessions.live()[0].times.reported_at is None


@async_test
async def test_a_learner_that_stood_still_blames_nobody() -> None:
    """When the learner itself did not run for longer than a lease, its actors' sessions are still there afterwards."""
    async with running(make_options(lease_seconds=0.5)) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        time.sleep(1.2)  # noqa: ASYNC251 - the event loop shall stand still
        await asyncio.sleep(0.15)
        assert (await actor.renew()).lease_ms == 500


@async_test
async def test_teams_are_bounded() -> None:
    """A session cannot fill the learner's memory with teams."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        for team in range(MAX_TEAMS):
            await actor.declare(team=team)
        await actor.declare(team=0)
        assert (await failure(actor.declare(team=MAX_TEAMS))).reason == "BAD_REQUEST"
