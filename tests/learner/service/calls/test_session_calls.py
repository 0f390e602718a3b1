"""Tests SessionService on real sockets: open, declare, renew, close."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from rollcast.limits import PROTOCOL_REVISION
from rollcast.specs import BehaviorSpec
from rollcast.v1 import session_pb2
from structlog.testing import capture_logs

from learner.link.footprint import Footprint
from learner.service.calls import session_calls
from learner.service.ingest.session import MAX_ERROR_CHARACTERS
from learner.service.ingest.sessions import MAX_TEAMS
from learner.shared.settings.options import RunOptions
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from tests.learner.service.calls.harness import SECONDS, Actor, eventually, failure, running
from tests.learner.service.calls.samples import make_options, make_spec
from tests.learner.service.ingest.parts import open_default


async def test_open_answers_with_the_run() -> None:
    """An opening returns the revision of both sides, run, place, lease and limits."""
    async with running(make_options(lease_seconds=9)) as learner, Actor(learner.server.port) as actor:
        opened = await actor.open(protocol_revision=99)
        assert opened.protocol_revision == PROTOCOL_REVISION
        assert (opened.run_id, opened.generation, opened.run_seed, opened.actor_index) == ("run", 1, 7, 0)
        assert (opened.lease_ms, opened.next_sequence, opened.resumed) == (9000, 1, False)
        assert opened.limits.max_chunk_bytes == 4 * 2**20
        assert opened.limits.max_chunk_age_ms == 25
        assert list(opened.behaviors) == ["CartPole"]
        assert opened.engine_settings.time_scale == 20
        assert opened.environment_settings.num_areas == 1


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
async def test_bad_openings_are_refused(fields: dict[str, object], reason: str) -> None:
    """An opening with an invalid field is refused with the reason."""
    async with running() as learner, Actor(learner.server.port) as actor:
        assert (await failure(actor.open(**fields))).reason == reason
        assert not learner.sessions.live()


async def test_a_full_learner_says_when_to_come_back() -> None:
    """Above max_sessions an opening is refused with the limit and a time to retry."""
    async with (
        running(make_options(max_sessions=1)) as learner,
        Actor(learner.server.port, "a") as first,
        Actor(learner.server.port, "b") as second,
    ):
        await first.open()
        error = await failure(second.open())
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS")
        assert error.retry_after_seconds is not None
        assert error.metadata["max_sessions"] == "1"
        await first.close()
        await second.open()


async def test_declaration_answers_with_the_run_file() -> None:
    """A declaration returns how segments are cut, and the same index when repeated."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        declared = await actor.declare()
        assert (declared.behavior_index, declared.time_horizon, declared.max_policy_lag) == (0, 8, 4)
        assert declared.training
        assert not declared.cut_at_swap
        assert (await actor.declare(team=1)).behavior_index == 0
        assert [behavior.name for behavior in learner.trainers.declared] == ["CartPole"]


async def test_an_actor_that_waits_for_a_judgement_is_not_lost() -> None:
    """The lease of a session whose declaration takes long is renewed, and other calls are answered."""
    may_answer = threading.Event()

    def judge(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        del spec, settings, service
        assert may_answer.wait(SECONDS)
        return Footprint(ring_rows=1, row_bytes=1)

    async with (
        running(make_options(lease_seconds=1.0), judge_declaration=judge) as learner,
        Actor(learner.server.port) as actor,
        Actor(learner.server.port, "other") as other,
    ):
        await actor.open()
        session = learner.sessions.find(actor.session_id)
        session.lease_until += SECONDS
        declared = asyncio.create_task(actor.declare())
        await eventually(lambda: session.lease_until < learner.sessions.clock() + SECONDS / 2)
        await other.open()
        assert not declared.done()
        may_answer.set()
        assert (await declared).behavior_index == 0


async def test_judgements_hold_up_neither_known_declarations_nor_each_other_for_long() -> None:
    """Estimates run one at a time and delay neither known declarations nor the encoding of policies."""
    begun, may_answer, at_once, most = threading.Event(), threading.Event(), 0, 0

    def judge(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        nonlocal at_once, most
        del settings, service
        at_once += 1
        most = max(most, at_once)
        if spec.name != "Known":
            begun.set()
            assert may_answer.wait(SECONDS)
        at_once -= 1
        return Footprint(ring_rows=1, row_bytes=1)

    options = RunOptions.model_validate(
        {"default_settings": {"time_horizon": 8}, "rollcast": {"max_streams": 64}}  # one connection makes all calls
    )
    async with (
        running(options, judge_declaration=judge) as learner,
        Actor(learner.server.port) as actor,
        Actor(learner.server.port, "other") as other,
    ):
        await actor.open()
        await other.enter(make_spec("Known"))
        names = [f"New{number}" for number in range(40)]  # more than a pool of threads has
        declared = [asyncio.create_task(actor.declare(make_spec(name))) for name in names]
        await eventually(begun.is_set)
        assert (await other.declare(make_spec("Known"))).behavior_index == 0
        assert await asyncio.to_thread(lambda: "encoded") == "encoded"
        assert not any(each.done() for each in declared)
        may_answer.set()
        assert len({(await each).behavior_index for each in declared}) == len(names)
        assert most == 1


async def test_a_broken_spec_is_refused() -> None:
    """A spec without observations is BAD_SPEC."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        request = session_pb2.DeclareBehaviorRequest(session_id=actor.session_id, epoch=actor.epoch)
        request.spec.name = "CartPole"
        error = await failure(actor.call(actor.sessions.DeclareBehavior, request))
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_SPEC")


async def test_calls_of_strangers_are_refused() -> None:
    """Every call with an unknown session is SESSION_EXPIRED."""
    async with running() as learner, Actor(learner.server.port) as actor:
        actor.session_id, actor.epoch = "stranger", 1
        for call in (actor.renew(), actor.close(), actor.declare()):
            error = await failure(call)
            assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED")


async def test_the_error_of_an_actor_that_ended_is_kept() -> None:
    """The error in a farewell is kept, up to a limit; a farewell without an error changes nothing."""
    async with running() as learner, Actor(learner.server.port, "rig") as actor:
        await actor.open()
        await actor.close(reason=session_pb2.CLOSE_REASON_DONE, message="done")
        assert not learner.sessions.last_failure
        await actor.open()
        await actor.close(reason=session_pb2.CLOSE_REASON_ENVIRONMENT_FAILED, message="x" * 10_000)
        assert learner.sessions.last_failure == "actor rig ended: " + "x" * MAX_ERROR_CHARACTERS


def _told(logs: Sequence[Mapping[str, Any]], event: str) -> list[Mapping[str, Any]]:
    return [line for line in logs if line["event"] == event]


async def test_failing_environments_are_warned_of() -> None:
    """The newest failure is logged with the number of failures and the lost steps."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.enter()
        given_up = session_pb2.ReasonCount(reason="env_error", steps=7)
        books = session_pb2.ActorBooks(produced_steps=10, open_steps=3, discarded=[given_up], agents=1)
        failed = session_pb2.EnvironmentReport(failures=1, error="environment 0 failed: ValueError: no (toy.py:3)")
        with capture_logs() as logs:
            for _ in range(3):
                await actor.renew(books=[books], environments=failed)
        (line,) = _told(logs, "environment_failed")
        assert (line["failures"], line["error"]) == (1, failed.error)
        assert (line["discarded_steps"], line["produced_steps"]) == (7, 10)
        (session,) = learner.sessions.live()
        assert session.environments.complaint(session.last_seen, 60.0) == failed.error
        assert not session.environments.complaint(session.last_seen + 61.0, 60.0)


async def test_a_hanging_environment_is_warned_of_in_growing_intervals() -> None:
    """A hanging environment is logged after 30 s and at doubling times."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        with capture_logs() as logs:
            for seconds in (10, 29, 31, 45, 63, 100, 130, 0, 20, 32):
                hanging = f"environment {seconds} has been in step()" if seconds else ""
                report = session_pb2.EnvironmentReport(hanging=hanging, hanging_seconds=seconds)
                await actor.renew(environments=report)
        told = [line["call"] for line in _told(logs, "environment_hangs")]
        assert told == [f"environment {seconds} has been in step() for {seconds} s" for seconds in (31, 63, 130, 32)]
        (session,) = learner.sessions.live()
        assert session.environments.complaint(session.last_seen, 60.0) == told[-1]


async def test_absurd_reports_of_environments_are_refused_and_long_ones_cut() -> None:
    """Invalid numbers in reports of environments are refused, and long texts are cut."""
    async with running() as learner, Actor(learner.server.port) as actor:
        learner.forgive()
        await actor.open()
        report = session_pb2.EnvironmentReport
        for wrong in (report(failures=2**64 - 1), report(hanging_seconds=math.nan), report(hanging_seconds=-1.0)):
            refused = await failure(actor.renew(environments=wrong))
            assert (refused.reason, refused.metadata["field"]) == ("BAD_REQUEST", "environments")
        await actor.renew(environments=report(failures=1, error="x" * 10_000, hanging="y" * 10_000))
        state = learner.sessions.live()[0].environments.state
        assert state is not None
        assert (len(state.error), len(state.hanging)) == (512, 512)


async def test_a_learner_that_stood_still_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the learner itself was suspended, its actors' sessions stay."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        loop, looks = asyncio.get_running_loop(), itertools.count(1)
        with monkeypatch.context() as patch:  # each look at the clock is ten minutes after the one before
            patch.setattr(learner.server, "_loop", SimpleNamespace(time=lambda: loop.time() + 600 * next(looks)))
            learner.sessions.find(actor.session_id).lease_until = learner.sessions.clock()
            ticks = learner.metric("rollcast_learner_event_loop_lag_seconds_count")
            await eventually(lambda: learner.metric("rollcast_learner_event_loop_lag_seconds_count") > ticks)
        assert (await actor.renew()).lease_ms == 15_000


async def test_teams_are_bounded() -> None:
    """The number of teams of a session is limited."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        for team in range(MAX_TEAMS):
            await actor.declare(team=team)
        await actor.declare(team=0)
        assert (await failure(actor.declare(team=MAX_TEAMS))).reason == "BAD_REQUEST"


async def test_the_agents_that_others_claim_are_not_fatal() -> None:
    """A declaration that only others' claims make too large is asked to wait; one too large by itself is refused."""
    options = make_options(device_ring_steps=30_000, max_chunk_steps=1000)
    async with (
        running(options) as learner,
        Actor(learner.server.port, "greedy") as greedy,
        Actor(learner.server.port, "honest") as honest,
    ):
        await greedy.open()
        await greedy.declare(agents=1000)
        await honest.open()
        error = await failure(honest.declare(agents=200))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_AGENTS")
        assert error.retry_after_seconds is not None
        assert (error.metadata["agents"], error.metadata["others"]) == ("200", "1000")
        assert (await failure(honest.declare(agents=2000))).reason == "RING_TOO_SMALL"
        await greedy.close()
        await honest.declare(agents=200)


@pytest.mark.parametrize(
    ("listed", "declared", "told"),
    [
        (("CartPol",), ("CartPole",), [["CartPol"]]),
        (("Walker", "CartPole1", "cart_pole"), ("CartPole", "Other"), [["CartPole1", "cart_pole", "Walker"]]),
        (("Cart", "CartPole"), ("CartPole", "Other"), [["Cart"]]),
        (("CartPole", "Walker"), ("CartPole",), []),  # an actor may declare the other later
    ],
)
async def test_settings_for_a_behavior_that_no_actor_has(
    listed: tuple[str, ...], declared: tuple[str, ...], told: list[list[str]]
) -> None:
    """A declared behavior that is not listed is a warning for those that are and that none declares, once, the nearest first."""
    options = open_default().model_copy(update={"behaviors": dict.fromkeys(listed, TrainerSettings())})
    with capture_logs() as logs:
        async with running(options) as learner, Actor(learner.server.port) as actor:
            await actor.open()
            for name in (*declared, *declared):
                await actor.declare(make_spec(name))
    lines = [line for line in logs if line["event"] == "behaviors_not_declared"]
    assert [line["behaviors"] for line in lines] == told
    assert all(repr(line["behaviors"][0]) in line["note"] and line["log_level"] == "warning" for line in lines)


async def test_one_client_cannot_take_all_behaviors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client adds a limited number of behaviors to those of the run file, also in a new session of its place."""
    monkeypatch.setattr(session_calls, "MAX_ADDED_BEHAVIORS", 3)
    async with running(open_default()) as learner, Actor(learner.server.port, "greedy") as greedy:
        await greedy.open()
        for number in range(3):
            await greedy.declare(make_spec(f"Added{number}"))
        error = await failure(greedy.declare(make_spec("Added3")))
        assert (error.reason, error.metadata["max_added"]) == ("UNKNOWN_BEHAVIOR", "3")
        await greedy.declare(make_spec("Added1"))
        await greedy.declare()
        await greedy.close()
        await greedy.open()
        assert (await failure(greedy.declare(make_spec("Added3")))).reason == "UNKNOWN_BEHAVIOR"
        async with Actor(learner.server.port, "other") as other:
            await other.enter(make_spec("Added1"))
            await other.declare(make_spec("Added3"))
