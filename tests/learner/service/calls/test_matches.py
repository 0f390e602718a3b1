"""Tests matches of single actors: who acts in which role, and what actors are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rollcast.enums import AssignmentRole, ColumnRole, Purpose
from rollcast.v1 import policy_pb2

from learner.link.matches import Match, Seat, games_of
from learner.link.to_front import Assign, Done, EndEvaluation, StartMatch
from learner.shared.policies import PolicyKey
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.options import RunOptions
from tests.learner.service.calls.harness import Actor, eventually, failure, read_policy, running
from tests.learner.service.calls.samples import NAME, make_chunk, make_policy
from tests.learner.service.calls.test_assignments import episodes_of, next_assignment

DIGEST = b"\7" * 32
LEARN, OPPONENT, IDLE = int(AssignmentRole.LEARN), int(AssignmentRole.OPPONENT), int(AssignmentRole.IDLE)


def self_play(**service: Any) -> RunOptions:
    """Returns a run file with one behavior that plays against itself."""
    return RunOptions.model_validate({"behaviors": {NAME: {"time_horizon": 8, "self_play": {}}}, "rollcast": service})


def match(actor: Actor, number: int = 3) -> StartMatch:
    """Returns a match in which team 0 learns and team 1 plays the untrained policy."""
    seats = (
        Seat(NAME, 0, AssignmentRole.LEARN),
        Seat(NAME, 1, AssignmentRole.OPPONENT, PolicyKey(1, 0, DIGEST)),
    )
    return StartMatch(Match(number, actor.session_id, seats))


async def join(actor: Actor, teams: int = 2) -> Any:
    """Declares all teams, and returns the subscription after what it says first."""
    await actor.open()
    for team in range(teams):
        assert (await actor.declare(team=team)).awaits_assignment
    call = actor.subscribe()
    assert roles(await next_assignment(call)) == [IDLE] * teams
    return call


def roles(assignment: policy_pb2.Assignment) -> list[int]:
    """Returns the roles by team."""
    return [int(part.role) for part in sorted(assignment.behaviors, key=lambda part: part.team)]


async def test_a_behavior_with_self_play_waits_for_a_match() -> None:
    """All teams are idle at first; a match seats them, with the exact policy of the opponent."""
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        call = await join(actor)
        learner.link.to_front.send(match(actor))
        told = await next_assignment(call)
        assert roles(told) == [LEARN, OPPONENT]
        assert {part.match for part in told.behaviors} == {3}
        pinned = told.behaviors[1]
        assert (pinned.generation, pinned.version, pinned.sha256) == (1, 0, DIGEST)
        learner.link.to_front.send(match(actor, 4))
        again = await next_assignment(call)
        assert {part.match for part in again.behaviors} == {4}


async def test_trainers_know_the_script_of_an_actor() -> None:
    """The name of the script that plays an actor's opponents reaches the trainers; text of another form is refused."""
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        learner.forgive()
        for name in ("chase", "a:b\n", f"a:{'b' * 127}", "a:b/c"):
            error = await failure(actor.open(opponent=name))
            assert (error.reason, error.metadata["field"]) == ("BAD_REQUEST", "opponent")
        await actor.open(opponent="my_game.scripts:chase")
        (told,) = learner.sessions.actors().actors
        assert (told.opponent, told.opponent_by_seat) == ("my_game.scripts:chase", False)
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        await actor.open(opponent="my_game.scripts:chase", opponent_by_seat=True)
        assert [each.opponent_by_seat for each in learner.sessions.actors().actors] == [True]


async def test_a_match_of_opponents_alone_limits_its_episodes() -> None:
    """A match of a tournament begins with a reset; told again for another reason, it has its limit and no reset."""
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        call = await join(actor)
        seats = (
            Seat(NAME, 0, AssignmentRole.OPPONENT, PolicyKey(0, 0, DIGEST)),
            Seat(NAME, 1, AssignmentRole.OPPONENT),
        )
        learner.link.to_front.send(StartMatch(Match(3, actor.session_id, seats, episodes=20, random_steps=2)))
        told = await next_assignment(call)
        assert roles(told) == [OPPONENT, OPPONENT]
        assert (told.episodes, told.reset) == (20, policy_pb2.RESET_MODE_NOW)
        assert [(part.sha256, part.random_steps) for part in told.behaviors] == [(DIGEST, 2), (b"", 2)]
        lesson = policy_pb2.Assignment(settings_revision=2)
        learner.link.to_front.send(Assign(lesson))
        again = await next_assignment(call)
        assert (again.episodes, again.reset) == (20, policy_pb2.RESET_MODE_NONE)
        learner.link.to_front.send(match(actor, 4))
        after = await next_assignment(call)
        assert (after.episodes, after.reset) == (0, policy_pb2.RESET_MODE_NONE)


async def test_lessons_and_evaluations_leave_the_match_as_it_was() -> None:
    """A lesson is told with the present match; an evaluation ends with the newest match."""
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        call = await join(actor)
        learner.link.to_front.send(match(actor))
        await next_assignment(call)
        lesson = policy_pb2.Assignment(settings_revision=2)
        lesson.environment_parameters["gravity"].constant = 9.5
        learner.link.to_front.send(Assign(lesson))
        told = await next_assignment(call)
        assert (roles(told), told.environment_parameters["gravity"].constant) == ([LEARN, OPPONENT], 9.5)
        learner.link.to_front.send(
            StartMatch(Match(1, actor.session_id, episodes=3, versions={NAME: (1, 0)}, is_deterministic=True))
        )
        ordered = await next_assignment(call)
        assert {part.purpose for part in ordered.behaviors} == {int(Purpose.EVALUATE)}
        learner.link.to_front.send(match(actor, 5))
        learner.link.to_front.send(EndEvaluation(actor.session_id))
        after = await next_assignment(call)
        assert (roles(after), {part.match for part in after.behaviors}) == ([LEARN, OPPONENT], {5})


async def test_an_evaluation_against_an_opponent_is_a_match_of_its_own() -> None:
    """It begins with a reset and takes the credit; matches of training wait for its end, and judge what was sent before."""
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        call = await join(actor)
        learner.link.to_front.send(match(actor))
        training = await next_assignment(call)
        seats = (
            Seat(NAME, 0, AssignmentRole.OPPONENT, PolicyKey(1, 2, DIGEST), is_deterministic=True),
            Seat(NAME, 1, AssignmentRole.OPPONENT, PolicyKey(0, 1, DIGEST)),
        )
        game = Match(2**31, actor.session_id, seats, episodes=6, random_steps=1, versions={NAME: (1, 2)})
        learner.link.to_front.send(StartMatch(game))
        told = await next_assignment(call)
        assert roles(told) == [OPPONENT, OPPONENT]
        assert (told.episodes, told.reset) == (6, policy_pb2.RESET_MODE_NOW)
        assert [part.deterministic for part in told.behaviors] == [True, False]
        assert {(part.match, part.random_steps, part.purpose) for part in told.behaviors} == {(2**31, 1, 0)}
        learner.link.to_front.send(match(actor, 4))  # drawn by self-play meanwhile
        learner.link.to_front.send(EndEvaluation(actor.session_id))
        after = await next_assignment(call)
        assert (roles(after), {part.match for part in after.behaviors}) == ([LEARN, OPPONENT], {4})
        assert (after.episodes, after.reset == policy_pb2.RESET_MODE_NOW) == (0, False)
        given = learner.server._router.assignments.given
        for assignment, first in ((training, None), (told, 0), (after, None)):
            chunk = make_chunk(team=0)
            chunk.columns["assignment"] = np.full(chunk.segments, assignment.id, np.uint64)
            assert given.opponent_segment(actor.session_id, NAME, chunk) == first


async def test_a_match_is_for_one_actor_and_a_new_team_waits() -> None:
    """Another actor hears nothing of it, and a team that the match does not seat is idle."""
    async with (
        running(self_play()) as learner,
        Actor(learner.server.port) as actor,
        Actor(learner.server.port) as other,
    ):
        call, others = await join(actor), await join(other, teams=1)
        learner.link.to_front.send(match(actor))
        assert roles(await next_assignment(call)) == [LEARN, OPPONENT]
        await actor.declare(team=2)
        assert roles(await next_assignment(call)) == [LEARN, OPPONENT, IDLE]
        learner.link.to_front.send(match(other, 9))
        told = await next_assignment(others)
        assert (roles(told), told.behaviors[0].match) == ([LEARN], 9)


async def test_rows_of_opponents_are_refused_and_their_records_arrive() -> None:
    """Ghost rows are never trained; the stream goes on, and records keep only matches that were given."""
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        call = await join(actor)
        upload = await actor.opened_upload()
        learner.pace(ahead_limit_steps=1000)
        learner.link.to_front.send(match(actor))
        told = await next_assignment(call)
        await eventually(lambda: learner.sessions.live()[0].accounts[0].granted_steps > 0)
        for sequence, team in ((1, 0), (2, 1)):
            chunk = make_chunk(3, sequence=sequence, team=team)
            chunk.columns["assignment"] = np.array([told.id], np.uint64)
            chunk.roles["assignment"] = ColumnRole.SEGMENT
            await upload.send(chunk)
        (rejection,) = (await upload.ack(2)).rejections
        assert (rejection.sequence, rejection.reason, rejection.steps) == (2, "opponent", 3)
        games = episodes_of(0, 0)
        games.sequence, games.team = 3, 1
        for name, values in (("purpose", [1, 1]), ("role", [2, 2])):
            games.columns[f"episode/{name}"] = np.array(values, np.uint8)
        games.columns["episode/match"] = np.array([3, 4], np.uint64)
        games.roles = dict.fromkeys(games.columns, ColumnRole.EPISODE)
        games.ghost_steps = 40
        await upload.send(games)
        await upload.ack(3)
        items = learner.trainers.take()
        assert [item.chunk.rows for item in items] == [3, 0]
        assert [game.match for game in games_of(NAME, items[1].chunk)] == [3]
        assert items[1].chunk.ghost_steps == 40
        assert (
            learner.behavior.queue.queued_steps,
            learner.metric("rollcast_learner_chunks_rejected_total", reason="opponent"),
        ) == (3, 1.0)


async def test_a_behavior_that_is_trained_plays_on() -> None:
    """Records of a behavior without further training still reach the trainers; its rows do not."""
    async with running(self_play()) as learner, Actor(learner.server.port) as actor:
        call = await join(actor)
        upload = await actor.opened_upload()
        learner.link.to_front.send(match(actor))
        await next_assignment(call)
        learner.link.to_front.send(Done(0))
        await eventually(lambda: not learner.behavior.training)
        games = episodes_of(0)
        games.ghost_steps = 7
        await upload.send(games)
        (rejection,) = (await upload.deliver(make_chunk(3, sequence=2))).rejections
        assert rejection.reason == "not_training"
        assert [item.chunk.ghost_steps for item in learner.trainers.take()] == [7]


async def test_credit_goes_to_actors_that_learn() -> None:
    """An actor that only plays opponents gets no credit in steps and reserves none."""
    async with (
        running(self_play()) as learner,
        Actor(learner.server.port) as actor,
        Actor(learner.server.port) as other,
    ):
        await join(actor)
        await join(other)
        uploads = [await each.upload() for each in (actor, other)]
        for upload in uploads:
            await upload.until("opened")
        learner.pace(ahead_limit_steps=1000)
        opponents = tuple(Seat(NAME, team, AssignmentRole.OPPONENT) for team in range(2))
        learner.link.to_front.send(StartMatch(Match(1, other.session_id, opponents)))
        learner.link.to_front.send(match(actor, 2))
        accounts = {session.session_id: session.accounts[0] for session in learner.sessions.live()}
        await eventually(lambda: accounts[actor.session_id].granted_steps > 500)
        assert accounts[other.session_id].granted_steps == 0
        learner.link.to_front.send(match(other, 3))
        await eventually(lambda: accounts[other.session_id].granted_steps > 0)


async def test_snapshots_are_served_after_a_restart(tmp_path: Path) -> None:
    """A version of an earlier generation, also version 0, is served by its digest, and no other in its place."""
    files = SnapshotFiles(tmp_path)
    old = make_policy(0, generation=1, size=3000)
    files.write(old)
    async with running(generation=2, snapshots=files) as learner, Actor(learner.server.port) as actor:
        await actor.enter()

        def get(**fields: Any) -> Any:
            request = policy_pb2.GetPolicyRequest(session_id=actor.session_id, behavior=NAME, **fields)
            return actor.policies.GetPolicy(request)

        digest = old.description.sha256
        header, payload = await read_policy(get(generation=1, version=0, sha256=digest))
        assert (header.generation, header.version, payload) == (1, 0, old.payload)
        newest = make_policy(0, generation=2)
        header, _ = await read_policy(get(generation=2, version=0, sha256=newest.description.sha256))
        assert header.generation == 2
        for fields in ({"generation": 2, "version": 0, "sha256": digest}, {"generation": 1, "sha256": DIGEST}):
            assert (await failure(get(**fields).read())).reason == "VERSION_EVICTED"
        assert (await failure(get(sha256=b"short").read())).reason == "BAD_REQUEST"


async def test_who_only_acts_is_not_asked_to_wait() -> None:
    """In a run that evaluates or serves a policy, all teams act."""
    task = policy_pb2.BehaviorAssignment(role=policy_pb2.ASSIGNMENT_ROLE_LEARN, purpose=int(Purpose.EVALUATE))
    async with running(self_play(), task=task) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        assert not (await actor.declare()).awaits_assignment
        told = await next_assignment(actor.subscribe())
        assert (roles(told), told.behaviors[0].purpose) == ([LEARN], Purpose.EVALUATE)
