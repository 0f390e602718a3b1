"""Who plays a round, who is waited for, and how many steps it takes."""

from __future__ import annotations

from learner.ingest.behaviors import Behavior
from learner.run.lockstep.rounds import Player, Round, assigned, quota_of, round_queue
from learner.settings.options import RunOptions
from tests.learner.ingest.parts import Parts, make_chunk
from tests.learner.ingest.test_round_queue import queued


def two_behaviors() -> tuple[Parts, Behavior, Behavior]:
    """A run in lock-step with a small and a large buffer, and an actor of both and one of the second."""
    sizes = {"Small": 10, "Large": 100}
    behaviors = {name: {"hyperparameters": {"batch_size": 4, "buffer_size": size}} for name, size in sizes.items()}
    parts = Parts(RunOptions.model_validate({"behaviors": behaviors, "rollcast": {"lockstep": {"actors": 2}}}))
    both, second = parts.open("both").session, parts.open("second").session
    small = parts.declared(both, "Small", agents=5)
    large = parts.declared(both, "Large", agents=1)
    parts.declared(second, "Large", agents=3, team=1)
    return parts, small, large


def players(parts: Parts) -> tuple[Player, ...]:
    """Everybody, by actor index."""
    return tuple(Player.of(session) for session in parts.sessions.live())


def test_the_quota_is_that_of_the_behavior_that_needs_most() -> None:
    """All agents take the same number of steps, and each behavior passes its buffer_size."""
    parts, small, large = two_behaviors()
    assert quota_of([small, large], players(parts)) == 26
    assert quota_of([small], players(parts)) == 3
    assert quota_of([small], players(parts)[1:]) == 1, "nobody plays it"


def test_a_replay_memory_needs_no_more_than_a_segment_of_each_agent() -> None:
    """Its buffer_size is what it holds, and no update waits until it is full."""
    replays = {"trainer_type": "sac", "time_horizon": 20}
    parts = Parts(RunOptions.model_validate({"behaviors": {"Replays": replays}, "rollcast": {"lockstep": {}}}))
    behavior = parts.declared(parts.open("one").session, "Replays", agents=5)
    assert quota_of([behavior], players(parts)) == 20


def test_a_player_is_waited_for_until_all_it_plays_is_over() -> None:
    """Of behaviors that are trained; one that is gone is waited for no longer, and is named once."""
    parts, small, large = two_behaviors()
    one, two = everybody = players(parts)
    playing = Round(3, everybody, {small.index: 7, large.index: 4})
    assert [player.name for player in playing.awaited([small, large])] == ["both", "second"]
    for behavior, player in ((large, one), (large, two)):
        end = make_chunk(0, segments=0, lockstep_round=3)
        round_queue(behavior).put(queued(end, session=player.session_id))
    assert [player.name for player in playing.awaited([small, large])] == ["both"]
    assert playing.awaited([large]) == [], "a behavior that is done is not waited for"
    assert [player.name for player in playing.lose({two.session_id})] == ["both"]
    assert playing.lose({two.session_id}) == []
    assert playing.awaited([small, large]) == []


def test_who_plays_nothing_that_is_trained_makes_no_round() -> None:
    """An actor of a behavior that is done plays on beside others only."""
    parts, small, large = two_behaviors()
    one, two = players(parts)
    assert one.plays([small])
    assert two.plays([small, large])
    assert not two.plays([small])
    assert not two.plays([])


def test_each_behavior_id_has_its_version() -> None:
    """Teams of a behavior are named one by one, and only those that somebody plays."""
    parts, small, large = two_behaviors()
    found = assigned([small, large], players(parts), {small.index: 7, large.index: 4})
    assert [(part.behavior, part.team, part.lockstep_version) for part in found] == [
        ("Small", 0, 7),
        ("Large", 0, 4),
        ("Large", 1, 4),
    ]
