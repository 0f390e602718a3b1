"""The table of sessions: a lease, an epoch that fences older openings, and a stable place in the run for each actor."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count as count_up
from typing import Any, Final

from rollcast.errors import BadRequest, SessionExpired, SessionFenced, TooManySessions
from rollcast.history import History, session_name

from learner.link.to_trainers import Actors
from learner.service.ingest.behaviors import MAX_CLAIMED_AGENTS, Behavior, BehaviorTable
from learner.service.ingest.ended import EndedSessions
from learner.service.ingest.given_up import GivenUp
from learner.service.ingest.ledger import ROLLBACK, Ledger
from learner.service.ingest.openings import Expired, Opened, Opening, Resumption, check_owner, check_room
from learner.service.ingest.quarantine import Place, Quarantine
from learner.service.ingest.received_book import ReceivedBook, ReceivedRecord
from learner.service.ingest.session import (
    CLAIMED_AT_ONCE,
    CLAIMED_PER_SECOND,
    MAX_PLACE,
    Account,
    ActorCounters,
    ActorSession,
)
from learner.service.ingest.session_ids import KEY_BYTES, SessionIds, short_id
from learner.service.ingest.times import REPORTS_PER_SECOND
from learner.shared.runfolder.received import Received, ReceivedCount
from learner.shared.saved_values import count

MIN_RETURN_SECONDS: Final = 60.0
"""Shortest time that actors have to return after a restart of the learner: they retry every 30 s or more often."""
REPORTS_OF_A_LEASE: Final = 3
"""Reports that an actor may miss before its lease runs out."""
MAX_TEAMS: Final = 64
"""Most teams of one behavior in one session."""
MAX_NAMES: Final = 4096
"""Most names remembered; the least recently seen one is forgotten first."""
RETRY_SECONDS: Final = 5.0


class SessionTable:
    """All sessions. Every method is one transaction under the ledger's lock, so that a snapshot is consistent.

    Args:
        behaviors: The declared behaviors and the settings.
        ledger: The ledger of steps; its lock is shared.
        generation: Number of this start of the learner.
        clock: Returns monotonic seconds.
        ids: Makes the ids of sessions; None makes ids of which no later start knows that they are its own.

    Attributes:
        opened: Number of sessions opened for new actors since the learner started.
        last_failure: One line on the last actor that ended with an error; empty if none did. Its text is untrusted.
        quarantine: Places that are shut out.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        ledger: Ledger,
        *,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
        ids: SessionIds | None = None,
    ) -> None:
        self._ids = ids or SessionIds(secrets.token_bytes(KEY_BYTES), "")
        self.generation = generation
        self.lock = ledger.lock
        self.clock = clock
        self.quarantine = Quarantine(clock)
        self._behaviors = behaviors
        self._ledger = ledger
        self._lease_seconds = behaviors.service.lease_seconds
        # In lock-step the place of an actor that is gone must become free for another one.
        self._grace_seconds = 0.0 if behaviors.service.lockstep is not None else behaviors.service.resume_grace_seconds
        self._max_sessions, self._limited_by = behaviors.service.session_limit
        self.opened = 0
        self.last_failure = ""
        self._sessions: dict[str, ActorSession] = {}
        lockstep = behaviors.service.lockstep
        self._places = Places() if lockstep is None else FixedPlaces(lockstep.actors, lockstep.actor_names)
        self._ended = EndedSessions(ledger)
        self._received = ReceivedBook(ledger, self._ended, behaviors)
        self._believes_actors = True

    @property
    def history(self) -> History | None:
        """Records what happens to each chunk; None without a history."""
        return self._ledger.history

    @property
    def lease_seconds(self) -> float:
        """Lifetime of a silent session, in seconds; longer with very many sessions, whose actors report more rarely."""
        return max(self._lease_seconds, REPORTS_OF_A_LEASE * len(self._sessions) / REPORTS_PER_SECOND)

    def live(self) -> tuple[ActorSession, ...]:
        """Returns the sessions whose actors are present, or were within their lease."""
        with self.lock:
            return tuple(session for session in self._sessions.values() if not session.is_absent)

    def away(self) -> tuple[ActorSession, ...]:
        """Returns the sessions whose lease has run out, and whose actors may still return."""
        return tuple(session for session in list(self._sessions.values()) if session.is_away)

    def actors(self) -> Actors:
        """Returns the message that tells the trainers which actors are present."""
        with self.lock:
            return Actors(
                tuple(session.actor for session in self.live()),
                {behavior.index: self.steps_taken(behavior.index) for behavior in self._behaviors.all()},
            )

    def open(self, opening: Opening) -> Opened:
        """Returns an actor's session: its previous one, or a new one.

        Opening twice with one instance id is safe: a session in which nothing was sent yet is returned again.

        Raises:
            NotAllowed: The requested session belongs to another principal.
            SessionFenced: Another process owns the requested session.
            TooManySessions: The table is full, or the principal has all the sessions that it may have.
        """
        with self.lock:
            known = self._resumable(opening)
            if known is not None and opening.resume is not None:
                if known.is_away:
                    self._check_room(opening)
                session = self._resume(known, opening.resume)
                self._note_fence(session, session.epoch)
                return Opened(session, resumed=True, settled_through=session.acked_through)
            asked_for = opening.resume.session_id if opening.resume is not None else ""
            twin = next((each for each in self._of(opening.principal) if each.instance_id == opening.instance_id), None)
            if twin is not None and twin.is_unused and twin.replaces == asked_for and not twin.is_absent:
                twin.epoch += 1
                self._note_fence(twin, twin.epoch)
                self.touch(twin)
                return Opened(twin, resumed=False, settled_through=self._settled_through(opening))
            ended = [self._end(old) for old in (twin, self._forerunner(opening)) if old is not None]
            self._check_room(opening)
            if opening.resume is not None:
                self._settle_lost(opening.resume, opening.principal)
            session = self._add(opening, replaces=asked_for)
            ended += [
                self._end(old)
                for old in list(self._sessions.values())
                if old.actor_index == session.actor_index and old is not session
            ]
            settled = self._settled_through(opening)
            return Opened(session, resumed=False, ended=tuple(ended), settled_through=settled)

    def get(self, session_id: str, epoch: int, principal: str = "") -> ActorSession:
        """Returns a principal's session after checking that the caller's epoch is its newest.

        Raises:
            NotAllowed: The session belongs to another principal.
            SessionExpired: The session does not exist (any more).
            SessionFenced: The session has been opened again since.
            BadRequest: The epoch was never issued.
        """
        session = self.find(session_id, principal)
        if epoch < session.epoch:
            raise SessionFenced(
                f"epoch {epoch} of session {short_id(session_id)} is fenced: the session was opened again as epoch "
                f"{session.epoch}. Two processes may be using one session",
                metadata={"session": short_id(session_id), "epoch": str(epoch), "current_epoch": str(session.epoch)},
            )
        if epoch > session.epoch:
            raise BadRequest(
                f"epoch {epoch} of session {short_id(session_id)} was never issued; the current epoch is {session.epoch}"
            )
        return session

    def find(self, session_id: str, principal: str = "") -> ActorSession:
        """Returns a principal's session regardless of its epoch.

        Raises:
            NotAllowed: The session belongs to another principal.
            SessionExpired: The session does not exist (any more).
        """
        session = self._sessions.get(session_id)
        if session is None or session.is_absent:
            is_older = session is not None and session.is_awaited
            why = "is from an earlier start of the learner" if is_older else "is unknown or its lease ran out"
            raise SessionExpired(
                f"session {short_id(session_id)} {why}: open a new session and name this one in `resume`",
                metadata={"session": short_id(session_id)},
            )
        check_owner(session, principal)
        return session

    def touch(self, session: ActorSession) -> None:
        """Renews the lease."""
        session.last_seen = self.clock()
        session.lease_until = session.last_seen + self.lease_seconds

    def declare(
        self, session: ActorSession, behavior: Behavior, team: int, agents: int, *, follows_quota: bool = False
    ) -> Account:
        """Records that a session plays a behavior; safe to repeat.

        Args:
            session: The session.
            behavior: The behavior.
            team: Team of its agents.
            agents: Number of its agents.
            follows_quota: Whether the actor follows quotas.

        Raises:
            BadRequest: The session has too many teams of the behavior.
            RingTooSmall: It has more agents than updates can use.
        """
        with self.lock:
            account = session.accounts.get(behavior.index)
            if account is not None and team not in account.teams and len(account.teams) >= MAX_TEAMS:
                raise BadRequest(f"{behavior.name} has {MAX_TEAMS} teams in this session, the maximum")
            if account is None:
                account = self._new_account(behavior, session)
                session.accounts[behavior.index] = account
            # A restored account has the settings of the run file before the restart; too small an allowance would never
            # end a segment.
            account.most_open_steps = behavior.most_open_steps
            account.max_chunk_bytes = self._behaviors.service.max_chunk_bytes
            account.full_chunk_steps = self._behaviors.service.max_chunk_bytes // behavior.spec.step_bytes
            agents_of_all = max(account.agents, sum({**account.teams, team: agents}.values()))
            account.time_horizon = behavior.horizon_of(agents_of_all)
            account.teams[team] = agents
            account.follows_quota = follows_quota and len(account.teams) == 1
            account.agents = agents_of_all
            self.touch(session)
            return account

    def agents(self, behavior: str, besides: ActorSession) -> int:
        """Returns the number of active agents of a behavior, without those of one session.

        A session's claim counts beyond `MAX_CLAIMED_AGENTS` only as far as it has sent steps, so that no actor can make
        the declarations of others too large.
        """
        with self.lock:
            others = (session for session in self.live() if session is not besides)
            accounts = (a for session in others for a in session.accounts.values() if a.behavior == behavior)
            return sum(min(a.agents, max(MAX_CLAIMED_AGENTS, a.received_steps)) for a in accounts)

    def renew(self, session: ActorSession, reports: Iterable[ActorCounters]) -> None:
        """Renews a lease and stores the actor's reports."""
        with self.lock:
            self.touch(session)
            self._take_in(session, reports)

    def close(self, session: ActorSession, reports: Iterable[ActorCounters]) -> None:
        """Ends a session at its actor's request; stores the last report."""
        with self.lock:
            self._take_in(session, reports)
            self._end(session, said_farewell=True)

    def extend(self, seconds: float) -> None:
        """Extends all leases by the time in which the learner itself did not run and could hear no actor."""
        with self.lock:
            for session in self._sessions.values():
                session.lease_until += seconds

    def expire(self) -> Expired:
        """Ends the sessions whose lease has expired; those that may return are away first, for `resume_grace_seconds`."""
        with self.lock:
            now = self.clock()
            late = [session for session in self._sessions.values() if session.lease_until <= now]
            leaving = [
                session for session in late if not session.is_absent and self._grace_seconds and not session.is_unused
            ]
            ended = [session for session in late if session not in leaving]
            for session in leaving:
                session.is_away = True
                session.lease_until = now + self._grace_seconds
            away = sorted((each for each in self._sessions.values() if each.is_away), key=lambda each: each.lease_until)
            # Actors that come and go must not make the table grow without end.
            ended += [each for each in away[: max(0, len(away) - self._max_sessions)] if each not in ended]
            for session in ended:
                self._end(session)
            if late:
                self._count_unknown()
            return Expired(
                tuple(session for session in leaving if session.is_away and not session.has_ended),
                tuple(session for session in ended if not session.is_awaited),
            )

    def end_unknown(self, knows: Callable[[str], bool]) -> tuple[ActorSession, ...]:
        """Ends the sessions of principals that no longer exist, and returns those that were alive in this process.

        Args:
            knows: Returns whether a principal exists, by its name.
        """
        with self.lock:
            orphans = [session for session in self._sessions.values() if not knows(session.principal)]
            for session in orphans:
                self._end(session)
            if orphans:
                self._count_unknown()
            return tuple(session for session in orphans if not session.is_absent)

    def end_place(self, place: Place) -> tuple[ActorSession, ...]:
        """Ends the sessions of a place in this process, and returns them."""
        principal, actor_name = place
        with self.lock:
            found = [session for session in self._of(principal) if session.actor_name == actor_name]
            return tuple(self._end(session) for session in found if not session.is_awaited)

    def steps_taken(self, behavior_index: int) -> int:
        """Returns the steps of a behavior that all actors have taken since the run began, as far as they are known."""
        with self.lock:
            accounts = (session.accounts.get(behavior_index) for session in self._sessions.values())
            present = sum(account.taken_steps for account in accounts if account is not None)
            behavior = self._behaviors.by_index(behavior_index)
            return present if behavior is None else present + self._ended.steps_taken(behavior.name)

    def credit_steps(self, behavior_index: int) -> int:
        """Returns the steps of a behavior that are granted and not yet taken, as far as actors reported them."""
        with self.lock:
            accounts = (session.accounts.get(behavior_index) for session in self.live())
            return sum(each.credit_steps for each in accounts if each is not None)

    def outstanding_steps(self, behavior_index: int) -> int:
        """Returns the steps of a behavior that actors have taken and neither sent nor given up, by their last reports."""
        with self.lock:
            accounts = (session.accounts.get(behavior_index) for session in self._sessions.values())
            return sum(each.outstanding_steps for each in accounts if each is not None)

    def given_up(self, behavior: Behavior) -> GivenUp:
        """Returns the steps of a behavior that actors gave up before they were received, or left with."""
        with self.lock:
            total = self._ended.given_up(behavior.name, behavior.index)
            for session in self._sessions.values():
                account = session.accounts.get(behavior.index)
                if account is not None:
                    total.add(account.given_up)
            return total

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain values, for a checkpoint. Call it and the ledger's under one hold of `lock`."""
        with self.lock:
            return {
                "sessions": [session.state_dict() for session in self._sessions.values()],
                "places": self._places.state_dict(),
                "ended": self._ended.state_dict(),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from a checkpoint: its sessions are awaited, and count as unknown in the ledger until they return.

        Load the behaviors and the ledger first.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: The state is invalid.
        """
        with self.lock:
            now = self.clock()
            return_by = now + max(self._lease_seconds, MIN_RETURN_SECONDS, self._grace_seconds)
            self._places.load_state_dict(state["places"])
            self._ended.load_state_dict(state["ended"])
            for saved in state["sessions"]:
                accounts = [self._known(Account.from_state(account)) for account in saved["accounts"]]
                age_seconds = self._ids.age_seconds(saved["session_id"])
                session = ActorSession.from_state(
                    saved, accounts, lease_until=return_by, last_seen=now, opened_at=now - age_seconds
                )
                self._sessions[session.session_id] = session
            self._count_unknown()

    def recover(self, found: Received) -> dict[str, int]:
        """Books what was received after the loaded state, or before the first one. Call it before the service starts.

        From then on it is not booked what actors say that they sent to an earlier start of the learner, unless the record
        lacks something.

        Args:
            found: The record of received steps.

        Returns:
            Steps that are now lost{restart}, by behavior.
        """
        with self.lock:
            self._believes_actors = not found.is_complete
            lost, left = self._received.recover(found, self._sessions.values(), self._new_account)
            for session in left:
                self._end(session, said_farewell=True)
            self._count_unknown()
            return lost

    def keep_record(self, record: ReceivedRecord) -> None:
        """Records from now on what is received."""
        self._received.record = record

    def received(self) -> dict[bytes, Mapping[int, ReceivedCount]]:
        """Returns what was received in the sessions that the next start may ask for, by key and by index of the behavior."""
        with self.lock:
            return self._received.counts(self._sessions.values())

    def note_received(self, session: ActorSession, account: Account) -> None:
        """Records what was received in a session, before it is acked. The caller holds `lock`."""
        self._received.note(session, account)

    def claimable(self, session: ActorSession) -> int:
        """Returns how many steps of a behavior that were not received a session's actor may have taken, by its age."""
        return _claimable(self.clock() - session.opened_at)

    def end_all(self) -> None:
        """Ends all sessions, because the run is over and no actor returns."""
        with self.lock:
            for session in list(self._sessions.values()):
                self._end(session)
            self._count_unknown()

    def _known(self, account: Account) -> Account:
        """Returns an account of a checkpoint after checking that its behavior is in the checkpoint."""
        behavior = self._behaviors.by_index(account.index)
        if behavior is None or behavior.name != account.behavior:
            raise ValueError(
                f"a session has an account of {account.behavior}, index {account.index}, which is not a declared "
                "behavior"
            )
        return account

    def _resumable(self, opening: Opening) -> ActorSession | None:
        """Returns the requested session if it can resume."""
        resume = opening.resume
        session = self._sessions.get(resume.session_id) if resume is not None else None
        if resume is None or session is None:
            return None
        if bool(session.principal) is not bool(opening.principal):
            return None  # from a start of the learner that identified actors, or did not
        check_owner(session, opening.principal)
        if session.instance_id != opening.instance_id:
            raise SessionFenced(
                f"session {short_id(session.session_id)} belongs to another process: start this actor without resuming the "
                "session",
                metadata={"session": short_id(session.session_id)},
            )
        if resume.generation > self.generation:
            return None  # from a deleted run folder: its numbers mean nothing here
        if resume.generation == self.generation and resume.acked_through > session.acked_through:
            return None  # it claims acks that were never sent
        return session

    def _settled_through(self, opening: Opening) -> int:
        """Returns the last sequence that was received of a requested session that cannot resume; 0 if unknown."""
        resume = opening.resume
        if resume is None or resume.generation > self.generation or not self._is_own(resume, opening.principal):
            return 0
        return self._ended.received_through(resume.session_id)

    def _is_own(self, resume: Resumption, principal: str) -> bool:
        """Returns whether this run opened a session for a principal."""
        return self._ids.is_own(resume.session_id, principal) or self._ended.knows(resume.session_id)

    def _resume(self, session: ActorSession, resume: Resumption) -> ActorSession:
        session.epoch = max(session.epoch, resume.epoch) + 1
        if resume.generation < self.generation:
            session.is_rolled_back = True
            session.acked_through = max(session.acked_through, resume.acked_through)
            for report in resume.reports:
                self._roll_back(session, report)
        else:
            self._take_in(session, resume.reports)
        session.generation = self.generation
        session.is_awaited = session.is_away = False
        self._count_unknown()
        self.touch(session)
        return session

    def _roll_back(self, session: ActorSession, report: ActorCounters) -> None:
        behavior = self._behaviors.by_index(report.behavior_index)
        if behavior is None or report.behavior_index >= self._behaviors.restored:
            return  # declared after the checkpoint: the behavior of this index is unknown
        account = session.accounts.get(behavior.index)
        if account is None:
            account = session.accounts[behavior.index] = self._new_account(behavior, session)
        report = report.within(account.received_steps - account.lost_steps, self.claimable(session))
        lost_steps = account.roll_back(report, keeps=behavior.takes_any_generation, is_believed=self._believes_actors)
        self._ledger.lose(behavior.name, ROLLBACK, lost_steps, queued=False)
        self.note_received(session, account)

    def _settle_lost(self, resume: Resumption, principal: str) -> None:
        if resume.generation > self.generation:
            return
        if not self._is_own(resume, principal):
            return  # an invented session, or one of another run or principal: what it claims is not booked
        is_older = resume.generation < self.generation

        def name_of(index: int) -> str | None:
            behavior = self._behaviors.by_index(index)
            known = behavior is not None and (not is_older or index < self._behaviors.restored)
            return behavior.name if behavior is not None and known else None

        self._ended.settle(
            resume.session_id,
            resume.reports,
            is_older=is_older,
            is_believed=self._believes_actors,
            name_of=name_of,
            claimable=_claimable(self._ids.age_seconds(resume.session_id)),
            principal=principal,
        )
        self._count_unknown()

    def _forerunner(self, opening: Opening) -> ActorSession | None:
        """Returns the session of an earlier process with the same name, if that process seems to be gone.

        Names may repeat, so a session counts as gone only if its stream was open and broke, or if it is away.
        """
        for session in self._of(opening.principal):
            is_gone = session.is_away or (session.had_stream and not session.is_connected and not session.is_awaited)
            if is_gone and session.actor_name == opening.actor_name and session.instance_id != opening.instance_id:
                return session
        return None

    def _of(self, principal: str) -> list[ActorSession]:
        """Returns the sessions of a principal."""
        return [session for session in self._sessions.values() if session.principal == principal]

    def _check_room(self, opening: Opening) -> None:
        """Refuses one more actor than the learner or the principal may have at once; see `check_room`."""
        present = sum(not session.is_absent for session in self._of(opening.principal))
        check_room(
            opening, len(self.live()), of_principal=present, most=self._max_sessions, limited_by=self._limited_by
        )

    def _add(self, opening: Opening, replaces: str) -> ActorSession:
        here = {session.actor_index for session in self._sessions.values() if not session.is_absent}
        awaited = {session.actor_index for session in self._sessions.values() if session.is_absent}
        now = self.clock()
        session = ActorSession(
            session_id=self._ids.make(opening.principal),
            epoch=1,
            actor_name=opening.actor_name,
            instance_id=opening.instance_id,
            actor_index=self._places.find(opening.actor_name, here, awaited, principal=opening.principal),
            generation=self.generation,
            lease_until=now + self.lease_seconds,
            last_seen=now,
            opened_at=now,
            replaces=replaces,
            principal=opening.principal,
        )
        self._sessions[session.session_id] = session
        if self.history is not None:
            self.history.write("opened", session=session_name(session.session_id), actor=session.actor_name)
        self.opened += 1
        return session

    def _end(self, session: ActorSession, *, said_farewell: bool = False) -> ActorSession:
        del self._sessions[session.session_id]
        session.has_ended = True
        self._note_fence(session, session.epoch + 1)
        self._received.end(session, has_left=said_farewell)
        self._ended.add(session, said_farewell=said_farewell)
        return session

    def _note_fence(self, session: ActorSession, epoch: int) -> None:
        """Records that nothing of a session with an older epoch counts from now on."""
        if self.history is not None:
            name = session_name(session.session_id)
            self.history.write("fenced", session=name, epoch=epoch, settled=session.acked_through)

    def _new_account(self, behavior: Behavior, session: ActorSession) -> Account:
        return Account(
            behavior=behavior.name,
            index=behavior.index,
            time_horizon=behavior.time_horizon,
            max_chunk_bytes=self._behaviors.service.max_chunk_bytes,
            is_byte_limited=not session.is_rolled_back,
        )

    def _take_in(self, session: ActorSession, reports: Iterable[ActorCounters]) -> None:
        for report in reports:
            account = session.accounts.get(report.behavior_index)
            if account is not None:
                account.report(report.within(account.received_steps - account.lost_steps, self.claimable(session)))

    def _count_unknown(self) -> None:
        awaited = [session for session in self._sessions.values() if session.is_awaited]
        for behavior in self._behaviors.all():
            count = sum(behavior.index in session.accounts for session in awaited)
            self._ledger.unknown(behavior.name, count + self._ended.unknown(behavior.name))


def _claimable(age_seconds: float) -> int:
    return CLAIMED_AT_ONCE + int(CLAIMED_PER_SECOND * max(0.0, age_seconds))


class Places:
    """Remembers the place of each actor name, so that a restarted actor gets the same seeds again."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def find(
        self, actor_name: str, live: Collection[int], awaited: Collection[int] = (), *, principal: str = ""
    ) -> int:
        """Returns the place for an actor.

        Args:
            actor_name: Name of the actor; may repeat.
            live: Places of the present actors.
            awaited: Places of actors that were present before a restart of the learner and may return.
            principal: Name of its principal; the same actor name of another one is another actor.
        """
        key = f"{principal}\n{actor_name}" if principal else actor_name  # no name of an actor has a line break
        place = self._choose(actor_name, self._last.pop(key, None), live, awaited)
        self._last[key] = place
        if len(self._last) > MAX_NAMES:
            del self._last[next(iter(self._last))]
        return place

    def _choose(self, actor_name: str, last: int | None, live: Collection[int], awaited: Collection[int]) -> int:
        del actor_name
        taken = {*live, *awaited}
        return (
            last
            if last is not None and last not in taken
            else next(index for index in count_up() if index not in taken)
        )

    def state_dict(self) -> dict[str, int]:
        """Returns the places by name, for a checkpoint."""
        return dict(self._last)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from a checkpoint.

        Raises:
            TypeError, ValueError: The state is invalid.
        """
        self._last = {str(name): count(state, name, most=MAX_PLACE) for name in state}


class FixedPlaces(Places):
    """Places from 0 to one less than the number of actors, so that a restarted actor keeps its place.

    Args:
        actors: Number of places.
        names: Names of the actors in the order of their places; None assigns places in the order of arrival.
    """

    def __init__(self, actors: int, names: Sequence[str] | None = None) -> None:
        super().__init__()
        self._actors = actors
        self._names = None if names is None else tuple(names)

    def _choose(self, actor_name: str, last: int | None, live: Collection[int], awaited: Collection[int]) -> int:
        """Returns the place of an actor; if necessary that of an awaited actor that has not returned.

        Raises:
            BadRequest: The run file names its actors, and this one is not among them.
            TooManySessions: The place is taken.
        """
        if self._names is not None:
            if actor_name not in self._names:
                raise BadRequest(
                    f"the actors of this run in lock-step are {', '.join(self._names)} "
                    "(rollcast.lockstep.actor_names): start this actor with one of these names (--name), or add "
                    f"{actor_name!r} to the list",
                    metadata={"field": "actor_name"},
                )
            last = self._names.index(actor_name)
        free = [place for place in range(self._actors) if place not in live]
        if last in free:
            return last
        if self._names is not None or not free:
            raise TooManySessions(
                f"the run is in lock-step and has no free place for {actor_name!r}: stop the actor that takes its "
                "place, or give this one another name",
                retry_after_seconds=RETRY_SECONDS,
            )
        return next((place for place in free if place not in awaited), free[0])
