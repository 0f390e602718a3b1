"""The table of sessions: a lease, an epoch that fences older openings, and a stable place in the run for each actor."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from typing import Any, Final

from rollcast.errors import BadRequest, SessionExpired, SessionFenced, TooManySessions

from learner.common.saved_values import count
from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.ended import EndedSessions, GivenUp, GivenUpBook
from learner.ingest.ledger import ROLLBACK, Ledger
from learner.ingest.session import MAX_PLACE, Account, ActorCounters, ActorSession

MAX_NAMES: Final = 4096
"""Names remembered; the one not heard of for longest is forgotten first."""
RETRY_SECONDS: Final = 5.0


class Places:
    """Remembers the place of each actor name, so that an actor that was restarted gets the same seeds again."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def find(self, actor_name: str, live: Collection[int], awaited: Collection[int] = ()) -> int:
        """Returns the place for an actor.

        Args:
            actor_name: may repeat.
            live: places of the actors that are here.
            awaited: places of those that were here before a restart of the learner, and may come back.
        """
        place = self._choose(actor_name, self._last.pop(actor_name, None), live, awaited)
        self._last[actor_name] = place
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
        """Continues from a checkpoint.

        Raises:
            TypeError, ValueError: it is not what was saved.
        """
        self._last = {str(name): count(state, name, most=MAX_PLACE) for name in state}


class FixedPlaces(Places):
    """Places from 0 to one less than the number of actors, so that a restarted actor is the one it was.

    Args:
        actors: how many places there are.
        names: the names of the actors in the order of their places; None gives places by who came first.
    """

    def __init__(self, actors: int, names: Sequence[str] | None = None) -> None:
        super().__init__()
        self._actors = actors
        self._names = None if names is None else tuple(names)

    def _choose(self, actor_name: str, last: int | None, live: Collection[int], awaited: Collection[int]) -> int:
        """Returns the place of an actor: if need be that of one that is awaited, and has not come.

        Raises:
            BadRequest: the run file names its actors, and not this one.
            TooManySessions: the place is taken.
        """
        if self._names is not None:
            if actor_name not in self._names:
                raise BadRequest(
                    f"the run is in lock-step, and its actors are {', '.join(self._names)} "
                    f"(rollcast.lockstep.actor_names): start this one with --name, or add {actor_name!r}",
                    metadata={"field": "actor_name"},
                )
            last = self._names.index(actor_name)
        free = [place for place in range(self._actors) if place not in live]
        if last in free:
            return last
        if self._names is not None or not free:
            raise TooManySessions(
                f"the run is in lock-step, and the place of {actor_name!r} is taken: stop the actor that has it, or "
                "give this one another name",
                retry_after_seconds=RETRY_SECONDS,
            )
        return next((place for place in free if place not in awaited), free[0])


MIN_RETURN_SECONDS: Final = 60.0
"""After a restart of the learner, its actors have at least this long to come back: they retry every 30 s at most."""
FULL_RETRY_SECONDS: Final = 5.0
MAX_TEAMS: Final = 64
"""Of one behavior in one session."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """The session that an actor had before, as it reports it; see ResumeSession in session.proto."""

    session_id: str
    epoch: int
    generation: int
    acked_through: int
    reports: tuple[ActorCounters, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """What an actor asks for."""

    actor_name: str
    instance_id: str
    resume: Resumption | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """What it gets.

    Attributes:
        session: its place.
        resumed: the session that was asked for goes on, and its sequence with it.
        ended: sessions that ended because of it.
    """

    session: ActorSession
    resumed: bool
    ended: tuple[ActorSession, ...] = ()


class SessionTable:
    """All sessions. Every method is one transaction under the ledger's lock, so that a snapshot is one moment.

    Args:
        behaviors: what can be declared; also gives the settings.
        ledger: the books; its lock is shared.
        generation: of this start of the learner.
        clock: monotonic seconds; tests give their own.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        ledger: Ledger,
        *,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.generation = generation
        self.lock = ledger.lock
        self.clock = clock
        self._behaviors = behaviors
        self._ledger = ledger
        self._lease_seconds = behaviors.service.lease_seconds
        self._max_sessions, self._limited_by = behaviors.service.session_limit
        self._sessions: dict[str, ActorSession] = {}
        lockstep = behaviors.service.lockstep
        self._places = Places() if lockstep is None else FixedPlaces(lockstep.actors, lockstep.actor_names)
        self._ended = EndedSessions(ledger)
        self._given_up = GivenUpBook()

    @property
    def lease_seconds(self) -> float:
        """How long a silent session lives."""
        return self._lease_seconds

    def live(self) -> tuple[ActorSession, ...]:
        """Returns the sessions whose actors are (or were, within their lease) here."""
        with self.lock:
            return tuple(session for session in self._sessions.values() if not session.is_awaited)

    def open(self, opening: Opening) -> Opened:
        """Gives an actor its session: the one it had, or a new one.

        Opening twice with one instance id is harmless: a session in which nothing was sent yet is answered again.

        Raises:
            SessionFenced: another process has the session that was asked for.
            TooManySessions: the table is full.
        """
        with self.lock:
            known = self._resumable(opening)
            if known is not None and opening.resume is not None:
                return Opened(self._resume(known, opening.resume), resumed=True)
            asked_for = opening.resume.session_id if opening.resume is not None else ""
            twin = next((s for s in self._sessions.values() if s.instance_id == opening.instance_id), None)
            if twin is not None and twin.is_unused and twin.replaces == asked_for:
                twin.epoch += 1
                self.touch(twin)
                return Opened(twin, resumed=False)
            ended = [self._end(old) for old in (twin, self._forerunner(opening)) if old is not None]
            if len(self.live()) >= self._max_sessions:
                raise TooManySessions(
                    f"{self._max_sessions} actors are connected, the limit of this learner ({self._limited_by}): raise "
                    "it, or stop another actor",
                    retry_after_seconds=FULL_RETRY_SECONDS,
                    metadata={"max_sessions": str(self._max_sessions)},
                )
            if opening.resume is not None:
                self._settle_lost(opening.resume)
            session = self._add(opening, replaces=asked_for)
            ended += [
                self._end(old)
                for old in list(self._sessions.values())
                if old.actor_index == session.actor_index and old is not session
            ]
            return Opened(session, resumed=False, ended=tuple(ended))

    def get(self, session_id: str, epoch: int) -> ActorSession:
        """Returns a session to the opening that owns it.

        Raises:
            SessionExpired: there is no such session (any more).
            SessionFenced: it was opened again since.
            BadRequest: the epoch was never given out.
        """
        session = self.find(session_id)
        if epoch < session.epoch:
            raise SessionFenced(
                f"epoch {epoch} of session {session_id} is fenced: the session was opened again as epoch "
                f"{session.epoch}. Two processes may be using one session",
                metadata={"session_id": session_id, "epoch": str(epoch), "current_epoch": str(session.epoch)},
            )
        if epoch > session.epoch:
            raise BadRequest(f"epoch {epoch} of session {session_id} was never given out; it is {session.epoch}")
        return session

    def find(self, session_id: str) -> ActorSession:
        """Returns a session, whatever its epoch.

        Raises:
            SessionExpired: there is no such session (any more).
        """
        session = self._sessions.get(session_id)
        if session is None or session.is_awaited:
            why = "is unknown or its lease ran out" if session is None else "is of an earlier start of the learner"
            raise SessionExpired(
                f"session {session_id[:64]!r} {why}: open a session, and name this one in `resume`",
                metadata={"session_id": session_id[:64]},
            )
        return session

    def touch(self, session: ActorSession) -> None:
        """Renews the lease."""
        session.last_seen = self.clock()
        session.lease_until = session.last_seen + self._lease_seconds

    def declare(self, session: ActorSession, behavior: Behavior, team: int, agents: int) -> Account:
        """Notes that a session plays a behavior; again is harmless.

        Raises:
            BadRequest: it has too many teams.
        """
        with self.lock:
            account = session.accounts.get(behavior.index)
            if account is not None and team not in account.teams and len(account.teams) >= MAX_TEAMS:
                raise BadRequest(f"{behavior.name} has {MAX_TEAMS} teams in this session, the most there may be")
            if account is None:
                account = self._new_account(behavior, session)
                session.accounts[behavior.index] = account
            # A restored account is of the run file before the restart; too small an allowance would never end a segment.
            account.time_horizon = behavior.time_horizon
            account.max_chunk_bytes = self._behaviors.service.max_chunk_bytes
            account.teams[team] = agents
            account.agents = max(account.agents, sum(account.teams.values()))
            self.touch(session)
            return account

    def agents(self, behavior: str, besides: ActorSession) -> int:
        """Returns how many agents of a behavior act, those of one session left out."""
        with self.lock:
            others = (session for session in self.live() if session is not besides)
            return sum(a.agents for session in others for a in session.accounts.values() if a.behavior == behavior)

    def renew(self, session: ActorSession, reports: Iterable[ActorCounters]) -> None:
        """Renews a lease and takes in what the actor reports."""
        with self.lock:
            self.touch(session)
            self._take_in(session, reports)

    def close(self, session: ActorSession, reports: Iterable[ActorCounters]) -> None:
        """Ends a session on its actor's wish; takes in the last report."""
        with self.lock:
            self._take_in(session, reports)
            self._end(session, said_farewell=True)

    def extend(self, seconds: float) -> None:
        """Adds to all leases the time in which the learner itself did not run, and so could not hear of anybody."""
        with self.lock:
            for session in self._sessions.values():
                session.lease_until += seconds

    def expire(self) -> tuple[ActorSession, ...]:
        """Ends the sessions whose lease ran out, and returns those among them that were alive in this process."""
        with self.lock:
            now = self.clock()
            late = [session for session in self._sessions.values() if session.lease_until <= now]
            for session in late:
                self._end(session)
            if late:
                self._count_unknown()
            return tuple(session for session in late if not session.is_awaited)

    def steps_taken(self, behavior_index: int) -> int:
        """Returns the steps of a behavior that all actors took, since the run began, as far as they said."""
        with self.lock:
            accounts = (session.accounts.get(behavior_index) for session in self._sessions.values())
            present = sum(account.produced_steps for account in accounts if account is not None)
            return present + self._ended.steps_taken(behavior_index)

    def given_up(self, behavior_index: int) -> GivenUp:
        """Returns the steps of a behavior that actors gave up before they were received here, as far as they said."""
        with self.lock:
            return self._given_up.total(behavior_index, self._sessions.values())

    def state_dict(self) -> dict[str, Any]:
        """Returns everything as plain values, for a checkpoint. Take it under `lock`, together with the ledger's."""
        with self.lock:
            return {
                "sessions": [session.state_dict() for session in self._sessions.values()],
                "places": self._places.state_dict(),
                "ended": self._ended.state_dict(),
                "given_up": self._given_up.state_dict(self._sessions.values()),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint: its sessions are awaited, and unknown in the books until they come back.

        Load the behaviors and the ledger first.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it is not what was saved.
        """
        with self.lock:
            now = self.clock()
            return_by = now + max(self._lease_seconds, MIN_RETURN_SECONDS)
            self._places.load_state_dict(state["places"])
            self._ended.load_state_dict(state["ended"])
            self._given_up.load_state_dict(state.get("given_up", {"ended": {}, "sessions": {}}))
            for saved in state["sessions"]:
                accounts = [self._known(Account.from_state(account)) for account in saved["accounts"]]
                session = ActorSession.from_state(saved, accounts, lease_until=return_by, last_seen=now)
                self._sessions[session.session_id] = session
            self._count_unknown()

    def _known(self, account: Account) -> Account:
        """Returns an account of a checkpoint; it must be of a behavior of the checkpoint."""
        behavior = self._behaviors.by_index(account.index)
        if behavior is None or behavior.name != account.behavior:
            raise ValueError(
                f"a session has an account of {account.behavior}, index {account.index}, which is no behavior"
            )
        return account

    def _resumable(self, opening: Opening) -> ActorSession | None:
        """Returns the session that was asked for, if it can go on."""
        resume = opening.resume
        session = self._sessions.get(resume.session_id) if resume is not None else None
        if resume is None or session is None:
            return None
        if session.instance_id != opening.instance_id:
            raise SessionFenced(
                f"session {session.session_id} belongs to another process (instance {session.instance_id}): start "
                "this actor without it",
                metadata={"session_id": session.session_id, "instance_id": session.instance_id},
            )
        if resume.generation > self.generation:
            return None  # of a run folder that is gone: its numbers mean nothing here
        if resume.generation == self.generation and resume.acked_through > session.acked_through:
            return None  # it claims acks that were never given
        return session

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
        session.is_awaited = False
        self._count_unknown()
        self.touch(session)
        return session

    def _roll_back(self, session: ActorSession, report: ActorCounters) -> None:
        behavior = self._behaviors.by_index(report.behavior_index)
        if behavior is None or report.behavior_index >= self._behaviors.restored:
            return  # declared after the checkpoint: nobody can tell which behavior this was
        account = session.accounts.get(behavior.index)
        if account is None:
            account = session.accounts[behavior.index] = self._new_account(behavior, session)
        self._ledger.lose(behavior.name, ROLLBACK, account.roll_back(report), queued=False)

    def _settle_lost(self, resume: Resumption) -> None:
        if resume.generation > self.generation:
            return
        is_older = resume.generation < self.generation

        def name_of(index: int) -> str | None:
            behavior = self._behaviors.by_index(index)
            known = behavior is not None and (not is_older or index < self._behaviors.restored)
            return behavior.name if behavior is not None and known else None

        self._ended.settle(resume.session_id, resume.reports, is_older=is_older, name_of=name_of)
        self._count_unknown()

    def _forerunner(self, opening: Opening) -> ActorSession | None:
        """Returns the session of an earlier process of the same name, if that process seems to be gone.

        Names may repeat, so a session counts as gone only if its stream was open and broke.
        """
        for session in self._sessions.values():
            is_gone = session.had_stream and not session.is_connected and not session.is_awaited
            if is_gone and session.actor_name == opening.actor_name and session.instance_id != opening.instance_id:
                return session
        return None

    def _add(self, opening: Opening, replaces: str) -> ActorSession:
        here = {session.actor_index for session in self._sessions.values() if not session.is_awaited}
        awaited = {session.actor_index for session in self._sessions.values() if session.is_awaited}
        now = self.clock()
        session = ActorSession(
            session_id=secrets.token_hex(16),
            epoch=1,
            actor_name=opening.actor_name,
            instance_id=opening.instance_id,
            actor_index=self._places.find(opening.actor_name, here, awaited),
            generation=self.generation,
            lease_until=now + self._lease_seconds,
            last_seen=now,
            replaces=replaces,
        )
        self._sessions[session.session_id] = session
        return session

    def _end(self, session: ActorSession, *, said_farewell: bool = False) -> ActorSession:
        del self._sessions[session.session_id]
        self._ended.add(session, said_farewell=said_farewell)
        self._given_up.end(session)
        return session

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
                account.report(report)

    def _count_unknown(self) -> None:
        awaited = [session for session in self._sessions.values() if session.is_awaited]
        for behavior in self._behaviors.all():
            count = sum(behavior.index in session.accounts for session in awaited)
            self._ledger.unknown(behavior.name, count + self._ended.unknown(behavior.name))


def snapshot(behaviors: BehaviorTable, sessions: SessionTable, ledger: Ledger) -> dict[str, Any]:
    """Returns the state of all three as plain values, taken between two chunks: for no step do they disagree."""
    with ledger.lock:
        return {"behaviors": behaviors.state_dict(), "ledger": ledger.state_dict(), "sessions": sessions.state_dict()}


def restore(state: Mapping[str, Any], behaviors: BehaviorTable, sessions: SessionTable, ledger: Ledger) -> None:
    """Continues from a snapshot, before the service starts.

    Raises:
        UserError: the run file no longer has one of the behaviors.
        LedgerError: the saved books do not balance.
        KeyError: the snapshot is incomplete.
    """
    with ledger.lock:
        behaviors.load_state_dict(state["behaviors"])
        ledger.load_state_dict(state["ledger"])
        sessions.load_state_dict(state["sessions"])
