"""Tests who plays a round, who is awaited, and the number of steps."""

from __future__ import annotations

from learner.link.to_trainers import Actor, Declared
from learner.shared.settings.options import RunOptions
from learner.training.lockstep.round_queue import RoundQueue
from learner.training.lockstep.rounds import Round, assigned, misfits, plays, quota_of
from learner.training.trainers.outcome_report import OutcomeReport
from tests.learner.service.ingest.parts import Parts, make_chunk
from tests.learner.training.lockstep.test_round_queue import queued


def two_behaviors() -> tuple[Parts, Declared, Declared]:
    """Returns a lock-step run with a small and a large buffer, and actors of both and of one."""
    sizes = {"Small": 10, "Large": 100}
    behaviors = {name: {"hyperparameters": {"batch_size": 4, "buffer_size": size}} for name, size in sizes.items()}
    parts = Parts(RunOptions.model_validate({"behaviors": behaviors, "rollcast": {"lockstep": {"actors": 2}}}))
    both, second = parts.open("both").session, parts.open("second").session
    small = parts.declared(both, "Small", agents=5)
    large = parts.declared(both, "Large", agents=1)
    parts.declared(second, "Large", agents=3, team=1)
    return parts, small.declared, large.declared


def players(parts: Parts) -> tuple[Actor, ...]:
    """Returns all players by actor index."""
    return parts.sessions.actors().actors


def test_the_quota_is_that_of_the_behavior_that_needs_most() -> None:
    """All agents take the same number of steps, and each behavior reaches its buffer_size."""
    parts, small, large = two_behaviors()
    assert quota_of([small, large], players(parts)) == 25
    assert quota_of([small], players(parts)) == 2
    assert quota_of([small], players(parts)[1:]) == 1, "nobody plays it"


def test_rounds_that_miss_a_buffer_size_are_named() -> None:
    """A quota that another behavior needs, or agents that do not divide the buffer, make updates of another size."""
    _, small, large = two_behaviors()
    assert misfits([small, large], {"Small": 125, "Large": 100}) == {"Small": 10}
    assert misfits([small, large], {"Small": 10, "Large": 0}) == {}, "nobody plays the second"


def test_a_replay_memory_needs_no_more_than_a_segment_of_each_agent() -> None:
    """A replay trainer's quota does not depend on buffer_size."""
    replays = {"trainer_type": "sac", "time_horizon": 20}
    parts = Parts(RunOptions.model_validate({"behaviors": {"Replays": replays}, "rollcast": {"lockstep": {}}}))
    behavior = parts.declared(parts.open("one").session, "Replays", agents=5)
    assert quota_of([behavior.declared], players(parts)) == 20


def test_a_player_is_waited_for_until_all_it_plays_is_over() -> None:
    """A player is awaited until its trained behaviors end the round; a lost one is named once."""
    parts, small, large = two_behaviors()
    one, two = everybody = players(parts)
    playing = Round(3, everybody, {small.index: 7, large.index: 4})
    queues = [RoundQueue(each, OutcomeReport(each.index, parts.link.to_front.send)) for each in (small, large)]
    assert [player.name for player in playing.awaited(queues)] == ["both", "second"]
    for player in (one, two):
        end = make_chunk(0, segments=0, lockstep_round=3)
        queues[1].put(queued(end, session=player.session_id))
    assert [player.name for player in playing.awaited(queues)] == ["both"]
    assert playing.awaited(queues[1:]) == [], "a behavior that is done is not waited for"
    assert [player.name for player in playing.lose({two.session_id})] == ["both"]
    assert playing.lose({two.session_id}) == []
    assert playing.awaited(queues) == []


def test_who_plays_nothing_that_is_trained_makes_no_round() -> None:
    """An actor of finished behaviors only makes no round."""
    parts, small, large = two_behaviors()
    one, two = players(parts)
    assert plays(one, [small])
    assert plays(two, [small, large])
    assert not plays(two, [small])
    assert not plays(two, [])


def test_each_behavior_id_has_its_version() -> None:
    """Each behavior id that is played has its version in the assignment."""
    parts, small, large = two_behaviors()
    found = assigned([small, large], players(parts), {small.index: 7, large.index: 4})
    assert [(part.behavior, part.team, part.lockstep_version) for part in found] == [
        ("Small", 0, 7),
        ("Large", 0, 4),
        ("Large", 1, 4),
    ]
