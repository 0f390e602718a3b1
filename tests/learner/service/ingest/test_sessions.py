"""Tests the session table with a manual clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rollcast.errors import BadRequest, SessionExpired, SessionFenced, TooManySessions
from rollcast.limits import MAX_REASONS

from learner.link.to_front import Pace
from learner.service.ingest.behaviors import MAX_CLAIMED_AGENTS
from learner.service.ingest.credit import step_allowance
from learner.service.ingest.ended import MAX_RECORDS
from learner.service.ingest.grants import CreditAllocator
from learner.service.ingest.openings import Expired, Opening, Resumption
from learner.service.ingest.session import CLAIMED_AT_ONCE, CLAIMED_PER_SECOND, ActorSession
from learner.service.ingest.sessions import MAX_NAMES, MIN_RETURN_SECONDS, FixedPlaces, Places
from learner.service.ingest.snapshots import restore, snapshot
from tests.learner.service.ingest.parts import NAME, Parts, make_options, report


def test_places_are_the_smallest_free_ones() -> None:
    """An actor gets the smallest free place."""
    parts = Parts()
    opened = [parts.open(name).session for name in ("a", "b", "c")]
    assert [session.actor_index for session in opened] == [0, 1, 2]
    parts.sessions.close(opened[1], [])
    assert parts.open("d").session.actor_index == 1
    assert parts.sessions.opened == 4


def test_a_gone_process_gives_way_to_its_successor() -> None:
    """A process replaces a disconnected one of its name, but not a connected or new one."""
    parts = Parts()
    gone = parts.open("a", "1").session
    gone.had_stream = True
    opened = parts.open("a", "2")
    assert opened.ended == (gone,)
    assert opened.session.actor_index == 0
    opened.session.had_stream = opened.session.is_connected = True
    assert parts.open("a", "3").ended == ()


def test_a_process_that_opens_anew_ends_its_own_session() -> None:
    """An opening without the previous session ends it and starts a new one."""
    parts = Parts()
    used = parts.open("a").session
    used.had_stream = True
    opened = parts.open("a")
    assert opened.ended == (used,)
    assert opened.session.session_id != used.session_id


def test_leases_run_out_and_are_kept_by_renewal() -> None:
    """A session ends when its lease expires, and renewals extend it."""
    parts = Parts(make_options(lease_seconds=10))
    silent, alive = parts.open("a").session, parts.open("b").session
    parts.now += 9
    parts.sessions.renew(alive, [])
    assert parts.sessions.expire() == Expired()
    parts.now += 1
    assert parts.sessions.expire() == Expired(ended=(silent,)), "nothing was sent, so nothing is kept"
    with pytest.raises(SessionExpired):
        parts.sessions.get(silent.session_id, 1)
    assert parts.sessions.get(alive.session_id, 1) is alive


def used(parts: Parts, name: str, received: int = 8) -> ActorSession:
    """Returns a session in which something was received."""
    session = parts.open(name).session
    parts.declared(session)
    account = session.accounts[0]
    account.produced_steps = account.received_steps = received
    session.acked_through = 1
    return session


def test_an_actor_may_return_after_its_lease() -> None:
    """A session whose lease ran out is away: its place, sequence and books stay, it counts as no actor, and it resumes."""
    parts = Parts(make_options(lease_seconds=10, resume_grace_seconds=100, max_sessions=1))
    session = used(parts, "a")
    parts.now += 10
    assert parts.sessions.expire() == Expired(away=(session,))
    assert (len(parts.sessions.away()), parts.sessions.live(), parts.sessions.steps_taken(0)) == (1, (), 8)
    with pytest.raises(SessionExpired):
        parts.sessions.get(session.session_id, 1)
    other = parts.open("b").session
    assert other.actor_index == 1, "the place is kept"
    resume = Resumption(session.session_id, 1, 1, 1, (report(produced=12, acked=8),))
    with pytest.raises(TooManySessions):
        parts.open("a", resume=resume)
    parts.sessions.close(other, [])
    parts.now += 99
    assert parts.sessions.expire() == Expired()
    opened = parts.open("a", resume=resume)
    assert (opened.session, opened.resumed, opened.settled_through) == (session, True, 1)
    assert (session.actor_index, session.epoch, session.next_sequence) == (0, 2, 2)
    assert parts.sessions.get(session.session_id, 2) is session
    assert (len(parts.sessions.away()), parts.sessions.steps_taken(0)) == (0, 12)


def test_an_away_session_ends_after_the_grace_or_with_a_successor() -> None:
    """It ends when its time is over, or when a new process of the same principal and name opens a session."""
    parts = Parts(make_options(lease_seconds=10, resume_grace_seconds=100))
    first, second = used(parts, "a"), used(parts, "b")
    parts.now += 10
    assert set(parts.sessions.expire().away) == {first, second}
    stranger = parts.sessions.open(Opening("a", "instance of a stranger", principal="another"))
    assert (stranger.ended, stranger.session.actor_index) == ((), 2)
    successor = parts.open("a", "another instance")
    assert (successor.ended, successor.session.actor_index) == ((first,), 0)
    parts.sessions.renew(successor.session, [])
    parts.now += 100
    expired = parts.sessions.expire()
    assert second in expired.ended
    assert second.has_ended
    resume = Resumption(second.session_id, 1, 1, 1, (report(produced=9, acked=8),))
    opened = parts.open("b", resume=resume)
    assert (opened.resumed, opened.settled_through, opened.session.actor_index) == (False, 1, 1)
    assert parts.sessions.steps_taken(0) == 8 + 9


def test_away_sessions_are_bounded() -> None:
    """No more than max_sessions are away: the oldest ends first."""
    parts = Parts(make_options(lease_seconds=10, resume_grace_seconds=1000, max_sessions=2))
    sessions = []
    for number in range(4):
        sessions.append(used(parts, f"a{number}"))
        parts.now += 10
        expired = parts.sessions.expire()
        assert expired.away == (sessions[-1],)
        assert expired.ended == tuple(sessions[number - 2 : number - 1] if number >= 2 else [])
    assert len(parts.sessions.away()) == 2


def test_nobody_is_away_in_lock_step_or_without_a_grace() -> None:
    """In lock-step a place must become free, and a grace of 0 s keeps nothing."""
    for options in (make_options(lockstep={"actors": 1}), make_options(resume_grace_seconds=0)):
        parts = Parts(options)
        session = used(parts, "a")
        parts.now += 1000
        assert parts.sessions.expire() == Expired(ended=(session,))


def test_an_away_session_gets_no_credit_until_it_returns() -> None:
    """Its reserve goes to the others, and a stream that is still open takes nothing."""
    parts = Parts(make_options(lease_seconds=10))
    sessions = [used(parts, "a", 0), used(parts, "b", 0)]
    parts.trainers.settle(pace=Pace(ahead_limit_steps=100))
    allocator = CreditAllocator(parts.behaviors)
    for _ in range(2):
        for each in sessions:
            allocator.grant(each, each.accounts[0])
    reserved = [each.accounts[0].step_share.reserved for each in sessions]
    assert sum(reserved) == 100
    parts.now += 9
    parts.sessions.renew(sessions[1], [])
    parts.now += 1
    (away,) = parts.sessions.expire().away
    allocator.forget(away)
    assert allocator.grant(away, away.accounts[0]) is None
    assert not allocator.is_worth_sending(away, away.accounts[0])
    allocator.grant(sessions[1], sessions[1].accounts[0])
    assert sessions[1].accounts[0].step_share.reserved == 100
    parts.open("a", resume=Resumption(away.session_id, 1, 1, 1))
    assert allocator.grant(away, away.accounts[0]) is not None


def test_the_table_is_bounded() -> None:
    """Above max_sessions an opening is refused with the limit and a time to retry."""
    parts = Parts(make_options(max_sessions=2))
    parts.open("a")
    parts.open("b")
    with pytest.raises(TooManySessions, match=r"rollcast\.max_sessions") as caught:
        parts.open("c")
    assert caught.value.retry_after_seconds is not None


def test_epochs_fence() -> None:
    """Each opening fences older epochs, and an unknown epoch is an error of the actor."""
    parts = Parts()
    session = parts.open().session
    parts.open()
    with pytest.raises(SessionFenced):
        parts.sessions.get(session.session_id, 1)
    assert parts.sessions.get(session.session_id, 2) is session
    with pytest.raises(BadRequest):
        parts.sessions.get(session.session_id, 3)


def test_steps_taken_outlive_sessions() -> None:
    """Steps of ended sessions count, and late reports of them are added once."""
    parts = Parts(make_options(lease_seconds=10))
    session = parts.open().session
    parts.declared(session)
    parts.sessions.renew(session, [report(produced=30)])
    parts.now += 10
    parts.sessions.expire()
    assert parts.sessions.steps_taken(0) == 30
    resume = Resumption(session.session_id, 1, 1, 0, (report(produced=50),))
    for _ in range(2):
        assert not parts.open(resume=resume).resumed
        assert parts.sessions.steps_taken(0) == 50
    assert parts.ledger.books(NAME).received == 0


def test_claims_of_acks_that_were_never_given_begin_anew() -> None:
    """A session that claims more acks than the learner gave in its generation is not resumed."""
    parts = Parts()
    session = parts.open().session
    session.had_stream = True
    opened = parts.open(resume=Resumption(session.session_id, 1, 1, acked_through=5))
    assert not opened.resumed
    assert opened.session.next_sequence == 1


def test_a_run_folder_that_was_replaced_does_not_resume() -> None:
    """A session of a later generation is not resumed, and nothing of it is booked."""
    parts = Parts()
    session = parts.open().session
    session.had_stream = True
    resume = Resumption(session.session_id, 1, generation=7, acked_through=0, reports=(report(produced=9, acked=9),))
    assert not parts.open(resume=resume).resumed
    assert parts.ledger.behaviors() == ()


def restarted(parts: Parts, generation: int = 2) -> Parts:
    """Returns the learner after a restart from its checkpoint."""
    state = snapshot(parts.behaviors, parts.sessions, parts.ledger)
    again = Parts(generation=generation)
    restore(state, again.behaviors, again.sessions, again.ledger)
    return again


def test_awaited_sessions_have_time_to_return() -> None:
    """After a restart sessions are kept longer than a short lease."""
    parts = Parts(make_options(lease_seconds=5))
    parts.declared(parts.open().session)
    again = restarted(parts)
    again.now += MIN_RETURN_SECONDS - 1
    assert again.sessions.expire() == Expired()
    assert again.sessions.live() == ()
    assert again.ledger.books(NAME).unknown_sessions == 1


def test_a_session_that_never_returns_stays_unknown() -> None:
    """A session that never returns stays unknown, also over further restarts."""
    parts = Parts(make_options(resume_grace_seconds=MIN_RETURN_SECONDS))
    session = parts.open().session
    parts.declared(session)
    again = restarted(parts)
    again.now += 10 * MIN_RETURN_SECONDS
    assert again.sessions.expire() == Expired()
    assert again.ledger.books(NAME).unknown_sessions == 1
    third = restarted(again, generation=3)
    assert third.ledger.books(NAME).unknown_sessions == 1
    resume = Resumption(session.session_id, 1, 1, 4, (report(produced=9, acked=8),))
    assert not third.open(resume=resume).resumed
    books = third.ledger.books(NAME)
    assert (books.unknown_sessions, books.lost, books.balanced) == (0, {"rollback": 8}, True)


def test_places_are_kept_for_awaited_sessions() -> None:
    """The place of an awaited session is not given to a new actor."""
    parts = Parts()
    parts.open("a")
    again = restarted(parts)
    assert again.open("b").session.actor_index == 1


def test_an_awaited_session_resumes_although_the_table_is_full() -> None:
    """An awaited session resumes even if the table is full."""
    parts = Parts(make_options(max_sessions=1))
    session = parts.open("a").session
    state = snapshot(parts.behaviors, parts.sessions, parts.ledger)
    again = Parts(make_options(max_sessions=1), generation=2)
    restore(state, again.behaviors, again.sessions, again.ledger)
    again.open("b")
    assert again.open("a", resume=Resumption(session.session_id, 1, 1, 0)).resumed


def test_a_restored_account_goes_by_the_present_run_file() -> None:
    """A restored account uses the time horizon of the new run file."""
    parts = Parts()
    session = parts.open().session
    parts.declared(session, agents=4)
    options = make_options(max_chunk_bytes=2**20)
    longer = options.behaviors[NAME].model_copy(update={"time_horizon": 1000})
    again = Parts(options.model_copy(update={"behaviors": {NAME: longer}}), generation=2)
    restore(snapshot(parts.behaviors, parts.sessions, parts.ledger), again.behaviors, again.sessions, again.ledger)
    resumed = again.open(resume=Resumption(session.session_id, 1, 1, 0, (report(produced=40, acked=8),)))
    assert resumed.resumed
    again.declared(resumed.session, agents=4)
    account = resumed.session.accounts[0]
    assert account.step_share.allowance == step_allowance(4, 1000)
    assert account.byte_share.allowance == 2**20
    granted = CreditAllocator(again.behaviors).grant(resumed.session, account)
    assert granted is not None
    assert granted.steps_through >= 40 + 4 * 1000


def test_epochs_grow_over_a_restart() -> None:
    """Epochs from after the checkpoint are fenced after a restart."""
    parts = Parts()
    session = parts.open().session
    again = restarted(parts)
    opened = again.open(resume=Resumption(session.session_id, epoch=6, generation=1, acked_through=0))
    assert opened.session.epoch == 7


def test_records_of_ended_sessions_are_bounded() -> None:
    """The number of records of ended sessions is limited."""
    parts = Parts(make_options(lease_seconds=1))
    for number in range(MAX_RECORDS + 50):
        parts.declared(parts.open(f"a{number}").session)
        parts.now += 1
        parts.sessions.expire()
    assert len(parts.sessions.state_dict()["ended"]["records"]) == MAX_RECORDS


def test_agents_are_counted_over_teams_and_actors() -> None:
    """The agents of a behavior are the sum over all teams and other actors."""
    parts = Parts()
    first, second = parts.open("a").session, parts.open("b").session
    parts.declared(first, team=0, agents=3)
    parts.declared(first, team=1, agents=2)
    parts.declared(second, agents=4)
    assert parts.sessions.agents(NAME, besides=second) == 5
    assert parts.sessions.agents(NAME, besides=first) == 4


def test_a_claim_of_many_agents_counts_only_with_steps() -> None:
    """Others reckon with a large claim only as far as its session has sent steps."""
    parts = Parts()
    first, second = parts.open("a").session, parts.open("b").session
    parts.declared(first, agents=40_000)
    assert parts.sessions.agents(NAME, besides=second) == MAX_CLAIMED_AGENTS
    first.accounts[0].received_steps = 5000
    assert parts.sessions.agents(NAME, besides=second) == 5000


def test_reasons_that_actors_invent_are_bounded() -> None:
    """Any number of sessions with words of their own leaves at most `MAX_REASONS` reasons and `other`; sums stay."""
    parts = Parts()
    for number in range(40):
        session = parts.open(f"actor {number}").session
        parts.declared(session)
        words = {f"word_{number}_{place}": 2 for place in range(10)}
        parts.sessions.close(session, [report(produced=40, discarded={**words, "reset": 1}, dropped=words)])
    given_up = parts.sessions.given_up(parts.behaviors.all()[0])
    for counts in (given_up.discarded, given_up.dropped):
        assert len(counts) <= MAX_REASONS + 1
        assert sum(counts.values()) - counts["reset"] == 40 * 10 * 2
    assert given_up.discarded["reset"] == 40


def test_an_awaited_twin_is_not_given_away() -> None:
    """A process that opens again without resuming gets a new session, not one from before a restart."""
    parts = Parts()
    parts.open("a", "1")
    again = Parts(generation=2)
    restore(snapshot(parts.behaviors, parts.sessions, parts.ledger), again.behaviors, again.sessions, again.ledger)
    opened = again.open("a", "1").session
    assert again.sessions.find(opened.session_id) is opened


def test_the_lease_grows_with_very_many_sessions() -> None:
    """With 1,000 sessions, which report every 20 s, a lease covers three reports; a few sessions have that of the run."""
    parts = Parts(make_options(max_sessions=1000))
    first = parts.open("first").session
    assert first.lease_until - parts.now == parts.sessions.lease_seconds == 15
    for number in range(999):
        parts.open(f"actor {number}")
    assert parts.sessions.lease_seconds == 60
    parts.sessions.touch(first)
    assert first.lease_until - parts.now == 60


def test_a_name_gets_its_place_again_unless_it_is_taken() -> None:
    """A name gets its former place, or the smallest free one if it is taken."""
    places = Places()
    assert places.find("a", {0, 1}) == 2
    assert places.find("a", set()) == 2
    assert places.find("a", {2}) == 0
    assert places.find("a", set()) == 0


def test_places_outlive_a_restart_and_are_bounded() -> None:
    """Places are saved in the checkpoint, and the oldest unused names are forgotten first."""
    places = Places()
    for number in range(MAX_NAMES + 1):
        places.find(f"a{number}", range(number))
    again = Places()
    again.load_state_dict(places.state_dict())
    assert again.find("a7", set()) == 7
    assert again.find("a0", set()) == 0
    assert len(again.state_dict()) == MAX_NAMES


def test_in_lockstep_there_are_as_many_places_as_actors() -> None:
    """In lock-step there are as many places as actors; a name gets its former place."""
    places = FixedPlaces(2)
    assert places.find("a", set()) == 0
    assert places.find("b", {0}) == 1
    assert places.find("b", {0}) == 1, "its place is free again"
    assert places.find("new", set(), awaited={0}) == 1, "whoever had the other place may come back"
    assert places.find("newer", {1}, awaited={0}) == 0
    with pytest.raises(TooManySessions, match="no free place"):
        places.find("c", {0, 1})


def test_names_fix_places() -> None:
    """Names in the run file fix the places, and other names are refused with them."""
    places = FixedPlaces(2, ("left", "right"))
    assert places.find("right", set()) == 1
    assert places.find("left", {1}) == 0
    assert places.find("right", {0}, awaited={1}) == 1, "it is the one that is awaited"
    with pytest.raises(TooManySessions, match="'left'"):
        places.find("left", {0})
    with pytest.raises(BadRequest, match="left, right"):
        places.find("middle", set())


def test_the_description_of_a_session_follows_its_changes() -> None:
    """The trainers are told of all actors each second; a description is made again only when something has changed."""
    parts = Parts()
    session = parts.open("first").session
    parts.declared(session)
    changes: tuple[Callable[[], object], ...] = (
        lambda: setattr(session, "is_connected", True),
        lambda: setattr(session.accounts[0], "agents", 9),
        lambda: session.accounts[0].teams.update({1: 1}),
        lambda: setattr(session, "opponent", "random"),
        lambda: setattr(session, "opponent_by_seat", True),
    )
    for change in changes:
        before = session.actor
        assert session.actor is before
        change()
        assert session.actor != before


CLAIM = 2**53
"""Larger than any honest count."""


@pytest.mark.parametrize("kind", ["produced", "discarded", "dropped", "acked"])
@pytest.mark.parametrize("way", ["report", "farewell", "return", "return of a stranger", "restart"])
def test_what_only_actors_say_is_bounded_by_time(kind: str, way: str) -> None:
    """No way to report makes more steps taken, given up or lost than a session's age allows, nor does a restart."""
    parts = Parts(make_options(lease_seconds=10))
    session = parts.open().session
    parts.declared(session)
    claims = report(**{kind: {"reset": CLAIM} if kind in {"discarded", "dropped"} else CLAIM})
    parts.now += 3
    if way in {"return", "return of a stranger", "restart"}:
        if way == "return of a stranger":
            parts.sessions.close(session, [])
        if way == "restart":
            parts = restarted(parts)
        for _ in range(3):
            resume = Resumption(session.session_id, session.epoch, 1, 0, (claims,))
            parts.open(resume=resume)
    for live in 3 * parts.sessions.live():
        parts.sessions.renew(live, [claims])
    if way == "farewell":
        parts.sessions.close(session, [claims])
    most = CLAIMED_AT_ONCE + 4 * CLAIMED_PER_SECOND
    for again in (parts, restarted(parts, 3)):
        books = again.ledger.books(NAME)
        assert again.sessions.steps_taken(0) <= 2 * most
        assert again.sessions.given_up(again.behaviors.all()[0]).total <= 2 * most
        assert (books.received <= most, books.balanced) == (True, True)


def test_a_busy_actor_s_word_is_enough() -> None:
    """As many steps as the fastest actor takes are believed, and the books add up to them."""
    parts = Parts()
    session = parts.open().session
    parts.declared(session)
    parts.now += 60
    parts.sessions.renew(session, [report(produced=2_900_000, discarded={"env_error": 2_000_000}, open=900_000)])
    behavior = parts.behaviors.all()[0]
    assert parts.sessions.steps_taken(0) == 2_900_000
    assert parts.sessions.given_up(behavior).discarded == {"env_error": 2_000_000}
    assert parts.sessions.outstanding_steps(0) == 900_000
    parts.sessions.close(session, [])
    assert parts.sessions.given_up(behavior).discarded == {"env_error": 2_000_000, "actor_gone": 900_000}
    assert parts.sessions.outstanding_steps(0) == 0
