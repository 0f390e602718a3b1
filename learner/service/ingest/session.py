"""The learner's record of one actor: its session, and its accounts with the behaviors it declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Self

from rollcast.errors import BadRequest
from rollcast.limits import MAX_REASONS, MAX_STEPS, REASON_PATTERN
from rollcast.v1 import session_pb2

from learner.link.to_trainers import Actor
from learner.service.ingest.credit import MAX_GRANT, Share, step_allowance
from learner.service.ingest.environments import EnvironmentNotes, EnvironmentState
from learner.service.ingest.given_up import GivenUp
from learner.service.ingest.times import TimesWindow
from learner.shared.observe.view import PolicyView, ReportView
from learner.shared.saved_values import MAX_CLAIMED, MAX_COUNT, count, flag, text

CLAIMED_PER_SECOND = 50_000
"""Steps of one behavior for each second of a session that its actor's word is enough for: steps that it took and that were
not received. An actor that obeys its credit has few of them, and one that gives up more is as fast as the fastest.
"""
CLAIMED_AT_ONCE = 2**16
"""Such steps of a session that has just been opened."""
MAX_PLACE = 2**32 - 1
"""The largest place in the run that a message holds."""
MAX_AGENTS = 2**20
MAX_ERROR_CHARACTERS = 512
_COUNTED_STEPS = ("produced", "open", "spooled", "unacked", "acked", "ghost")
_SAVED_ACCOUNT_COUNTS = (
    *("index", "time_horizon", "max_chunk_bytes", "agents"),
    *("produced_steps", "received_steps", "received_bytes", "acked_steps", "discarded_steps", "dropped_steps"),
    *("given_up_floor", "lost_steps", "episode_rows", "episodes", "granted_steps", "granted_bytes"),
)
SHARE: Final = 0.1
"""Seconds of the loop per second that a session may take for chunks that bring nothing: duplicates, refused chunks, and
columns that are large for the rows of their chunk.
"""
BURST_SECONDS: Final = 0.1
"""Time that a session may be ahead before it must wait."""
CHUNK_SECONDS: Final = 0.001
"""Time that a chunk with queued rows may take, beside `BYTE_SECONDS` for each byte of them."""
BYTE_SECONDS: Final = 8e-9
"""Time per byte of queued rows, about four times what pictures take."""
_SAVED_TEXTS = ("session_id", "actor_name", "instance_id", "replaces")
_SAVED_COUNTS: Mapping[str, int] = MappingProxyType(
    {"epoch": MAX_CLAIMED, "actor_index": MAX_PLACE, "generation": MAX_COUNT, "acked_through": MAX_CLAIMED}
)
"""Saved counts with their largest values."""


@dataclass(frozen=True, slots=True)
class ActorCounters(ReportView):
    """An actor's own counts of one behavior, cumulative over the session; see ActorBooks in session.proto."""

    @classmethod
    def from_message(cls, message: session_pb2.ActorBooks) -> Self:
        """Decodes and checks an actor's report.

        Raises:
            BadRequest: A counter is out of bounds, or a reason is unknown to the ledger.
        """
        steps = {name: getattr(message, f"{name}_steps") for name in _COUNTED_STEPS}
        discarded, dropped = reasons_from(message.discarded), reasons_from(message.dropped)
        counters = cls(message.behavior_index, agents=message.agents, discarded=discarded, dropped=dropped, **steps)
        largest = max(steps.values())
        if largest > MAX_STEPS:
            raise BadRequest(
                f"a counter of behavior {message.behavior_index} is {largest}; at most {MAX_STEPS} is allowed"
            )
        check_agents(counters.agents)
        return counters

    def within(self, received: int, claimable: int) -> Self:
        """Returns the counters without what is more than an actor's word is enough for.

        Args:
            received: Received steps.
            claimable: Most steps that were taken and not received.
        """
        most, left = received + claimable, claimable
        limited: dict[str, Any] = {name: min(getattr(self, name), most) for name in _COUNTED_STEPS}
        for kind in ("discarded", "dropped"):
            limited[kind] = counts = dict(getattr(self, kind))
            for reason, steps in counts.items():
                counts[reason] = min(steps, left)
                left -= counts[reason]
        return replace(self, **limited)


@dataclass(frozen=True, slots=True)
class PolicyState(PolicyView):
    """The policy that acts at an actor; see PolicyReport in session.proto."""

    @classmethod
    def from_message(cls, message: session_pb2.PolicyReport) -> Self:
        """Decodes the state; truncates a long error."""
        return cls(message.behavior_index, message.generation, message.version, message.error[:MAX_ERROR_CHARACTERS])


@dataclass(slots=True, eq=False)
class Account:
    """One session's account with one behavior. All counts are cumulative over the session.

    Attributes:
        behavior: Name of the behavior.
        index: Index of the behavior.
        time_horizon: Longest segment of the behavior, in steps.
        max_chunk_bytes: Allowance in bytes.
        most_open_steps: Largest allowance in steps, whatever number of agents it claims.
        teams: Agents that the session declared, by team.
        agents: Agents that act now, all teams together.
        produced_steps: Steps taken by the actor, as far as it reported them.
        received_steps: Steps in chunks that were settled here, including refused ones but not duplicates.
        received_bytes: Encoded size of those chunks.
        acked_steps: Steps acked, as far as the actor reported them.
        discarded_steps: Steps given up before they became part of a chunk, as far as the actor reported them.
        dropped_steps: Steps given up afterwards, as far as the actor reported them.
        given_up_floor: Steps that it will have given up once it has carried out a resumption.
        lost_steps: Those of `received_steps` that only the actor says were received, by an earlier start of the learner.
        episode_rows: Rows in accepted chunks, by which the number of episodes is limited (`learner.service.ingest.intake`).
        episodes: Records of training episodes that counted.
        granted_steps: Last grant in steps.
        follows_quota: Whether the actor follows quotas.
        quota_through: Its quota, as a number of produced steps; None for none. See `learner.service.ingest.quotas`.
        granted_bytes: Last grant in bytes.
        spooled_steps: Steps in chunks that wait for credit at the actor, as last reported: those recorded without a
            connection, and those kept over a restart of the learner.
        full_chunk_steps: Most steps of a chunk.
        is_byte_limited: False after a rollback: the bytes that the actor has sent are then unknown, and too low a limit
            would stop it for good. Reading from the network then pauses to keep within the queue's capacity.
        discarded: Those of `discarded_steps` whose reasons the actor reported, by reason.
        dropped: Steps given up afterwards, by reason.
        counters: The actor's last report.
        groups: The newest groups of its agents.
    """

    behavior: str
    index: int
    time_horizon: int
    max_chunk_bytes: int
    most_open_steps: int = MAX_GRANT
    teams: dict[int, int] = field(default_factory=dict)
    agents: int = 0
    produced_steps: int = 0
    received_steps: int = 0
    received_bytes: int = 0
    acked_steps: int = 0
    discarded_steps: int = 0
    dropped_steps: int = 0
    given_up_floor: int = 0
    lost_steps: int = 0
    episode_rows: int = 0
    episodes: int = 0
    granted_steps: int = 0
    granted_bytes: int = 0
    is_byte_limited: bool = True
    follows_quota: bool = False
    quota_through: int | None = None
    discarded: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    counters: ActorCounters | None = None
    groups: dict[int, None] = field(default_factory=dict)
    spooled_steps: int = 0
    full_chunk_steps: int = 0

    def report(self, counters: ActorCounters) -> None:
        """Stores an actor's report. Counters never fall, so a late report changes nothing."""
        self.counters = counters
        self.spooled_steps = counters.spooled
        self.produced_steps = max(self.produced_steps, counters.produced)
        self.acked_steps = max(self.acked_steps, counters.acked)
        self.discarded_steps = max(self.discarded_steps, sum(counters.discarded.values()))
        self.dropped_steps = max(self.dropped_steps, sum(counters.dropped.values()))
        if sum(counters.discarded.values()) >= sum(self.discarded.values()):
            self.discarded = counters.discarded
        if sum(counters.dropped.values()) >= sum(self.dropped.values()):
            self.dropped = counters.dropped
        if counters.agents:
            self.agents = counters.agents

    def roll_back(self, counters: ActorCounters, *, keeps: bool = False, is_believed: bool = True) -> int:
        """Stores the report of an actor that returns to a learner restarted from a checkpoint; `report` limits it.

        Steps that are open or unacked at the actor count as given up, since a new generation makes the actor drop them.
        Its reports catch up later; until then, credit that ignored these steps would block the actor.

        Args:
            counters: The report.
            keeps: Whether it gives up no chunk.
            is_believed: Whether steps that were acked, as only the actor says, count.

        Returns:
            Steps that were acked after the checkpoint and so are lost; they count as received from now on.
        """
        self.report(counters)
        self.is_byte_limited = False
        lost_steps = 0
        if is_believed:
            lost_steps = max(0, counters.acked - self.received_steps)
        self.received_steps += lost_steps
        self.lost_steps += lost_steps
        settled = max(counters.acked, self.received_steps)
        kept = max(0, counters.acked + counters.unacked - settled) + counters.spooled if keeps else 0
        self.given_up_floor = max(self.given_up_floor, counters.produced - settled - kept)
        self.spooled_steps = kept
        return lost_steps

    def recover(self, received_steps: int, taken_steps: int) -> int:
        """Takes over what was received and taken after the checkpoint; returns the received steps that were not known."""
        gained = max(0, received_steps - self.received_steps)
        self.received_steps += gained
        given_up = self.discarded_steps + self.dropped_steps
        self.produced_steps = max(self.produced_steps, self.received_steps + given_up, taken_steps)
        return gained

    @property
    def given_up(self) -> GivenUp:
        """Steps that the actor gave up and that were not received, by reason."""
        return GivenUp(Counter(self.discarded), Counter(self.dropped))

    @property
    def taken_steps(self) -> int:
        """Steps taken: those that the actor reported, and at least those that were received or given up."""
        return max(self.produced_steps, self._settled_steps)

    @property
    def outstanding_steps(self) -> int:
        """Steps taken that were neither received nor given up."""
        return max(0, self.produced_steps - self._settled_steps)

    @property
    def _settled_steps(self) -> int:
        return self.received_steps + sum(self.discarded.values()) + sum(self.dropped.values())

    @property
    def credit_steps(self) -> int:
        """Steps that the actor may still take, according to its last report."""
        limit = self.granted_steps if self.quota_through is None else self.quota_through
        return max(0, limit - self.produced_steps)

    @property
    def step_share(self) -> Share:
        """The account in steps, for credit."""
        received = max(self.received_steps, self.acked_steps)
        given_up = max(self.discarded_steps + self.dropped_steps, self.given_up_floor)
        # A spooled chunk is no open segment: it needs room of its own, however large it is.
        allowance = min(step_allowance(self.agents, self.time_horizon), self.most_open_steps)
        allowance += min(self.spooled_steps, self.full_chunk_steps)
        return Share(received + given_up, allowance, self.granted_steps)

    @property
    def byte_share(self) -> Share:
        """The account in bytes, for credit."""
        settled = self.received_bytes if self.is_byte_limited else MAX_GRANT
        return Share(settled, self.max_chunk_bytes, self.granted_bytes)

    def is_covered(self, more_steps: int) -> bool:
        """Returns whether credit covers the given number of further received steps.

        The actor has produced at least the steps that it sent and gave up, and they must not exceed `granted_steps`.
        The grant is recorded before it is sent and never falls, so an obedient actor is always covered. One additional
        allowance covers steps that an actor takes while its credit changes.
        """
        share = self.step_share
        return share.settled + more_steps <= share.granted + share.allowance

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts as plain values, for a checkpoint."""
        saved = (*_SAVED_ACCOUNT_COUNTS, "behavior", "is_byte_limited")
        return {name: getattr(self, name) for name in saved} | {"teams": dict(self.teams)} | self.given_up.state_dict()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Creates an account from a checkpoint.

        Raises:
            KeyError, TypeError, ValueError: The state is invalid.
        """
        teams, given_up = state["teams"], GivenUp.from_state(state)
        counts: dict[str, Any] = {name: count(state, name, most=MAX_CLAIMED) for name in _SAVED_ACCOUNT_COUNTS}
        return cls(
            behavior=text(state, "behavior"),
            teams={int(team): count(teams, team) for team in teams},
            is_byte_limited=flag(state, "is_byte_limited"),
            discarded=dict(given_up.discarded),
            dropped=dict(given_up.dropped),
            **counts,
        )


class LoopTime:
    """Measures the processor time that one session takes from the event loop. For the event loop alone.

    Queued rows were granted by credit, so their time counts only as far as it exceeds the session's equal share: of ten
    sessions or fewer, none has to wait because of them unless it takes more than its part of the whole loop.
    """

    __slots__ = ("_at", "_owed_seconds")

    def __init__(self) -> None:
        self._at = 0.0
        self._owed_seconds = 0.0

    def charge(self, seconds: float, queued_bytes: int | None, sessions: int) -> None:
        """Adds the time that a chunk took.

        Args:
            seconds: Processor time of the loop.
            queued_bytes: Declared size of its queued rows, in bytes; None if none was queued.
            sessions: Number of sessions that are uploading.
        """
        granted = 0.0 if queued_bytes is None else min(seconds, CHUNK_SECONDS + BYTE_SECONDS * queued_bytes)
        self._owed_seconds += seconds - granted + granted * min(1.0, SHARE * sessions)

    def wait_seconds(self, now: float) -> float:
        """Returns how long the session must wait before its next chunk, in seconds; 0 if it need not.

        Args:
            now: Monotonic seconds.
        """
        self._owed_seconds = max(0.0, self._owed_seconds - SHARE * (now - self._at))
        self._at = now
        return max(0.0, self._owed_seconds - BURST_SECONDS) / SHARE


@dataclass(slots=True, eq=False)
class ActorSession:
    """One actor's place in the run.

    Attributes:
        session_id: Id of the session.
        epoch: Grows with each opening; older openings are fenced.
        actor_name: The actor's name for itself; may repeat.
        instance_id: Id of the actor's process.
        actor_index: Its place, from 0.
        generation: Generation of the learner when it was last opened.
        lease_until: When the lease expires, in monotonic seconds.
        last_seen: When the actor was last heard, in monotonic seconds.
        opened_at: When it was opened for the first time, in monotonic seconds.
        acked_through: Every chunk up to this sequence is settled.
        accounts: Accounts by behavior index.
        policies: Policies that act there, as last reported.
        policy_lag: Largest policy lag over its behaviors when they were last reported, in versions; None before a
            comparable report.
        times: How its actor recently spent its time.
        environments: State of its actor's environments.
        replaces: The session that the actor requested when it got this one.
        is_rolled_back: Whether it returned to a learner restarted from a checkpoint; see `Account.is_byte_limited`.
        is_awaited: Whether it came from a checkpoint and its actor has not returned.
        is_away: Whether its lease has run out, and its actor may still return.
        is_connected: Whether its upload stream is open.
        had_stream: Whether its upload stream has ever been open in this process.
        has_ended: Whether it has left the table of sessions for good.
        opponent: Name of the script with which its actor plays opponents, from its last opening; empty for none.
        opponent_by_seat: Whether the script plays only the opponents whose seats name no policy.
        loop_time: Time of the event loop that it takes.
        principal: Name of the principal that it belongs to; empty if actors are not identified.
        peer: Address from which it was last opened; empty after a restart of the learner.
    """

    session_id: str
    epoch: int
    actor_name: str
    instance_id: str
    actor_index: int
    generation: int
    lease_until: float
    last_seen: float
    opened_at: float
    acked_through: int = 0
    accounts: dict[int, Account] = field(default_factory=dict)
    policies: tuple[PolicyState, ...] = ()
    policy_lag: int | None = None
    times: TimesWindow = field(default_factory=TimesWindow)
    environments: EnvironmentNotes = field(default_factory=EnvironmentNotes)
    replaces: str = ""
    is_rolled_back: bool = False
    is_awaited: bool = False
    is_away: bool = False
    is_connected: bool = False
    had_stream: bool = False
    has_ended: bool = False
    opponent: str = ""
    opponent_by_seat: bool = False
    loop_time: LoopTime = field(default_factory=LoopTime)
    principal: str = ""
    peer: str = ""
    _actor: Actor | None = field(default=None, init=False, repr=False)

    @property
    def is_unused(self) -> bool:
        """True if nothing was sent in it; an actor that missed the answer may then get this session again."""
        return self.acked_through == 0 and not self.had_stream

    @property
    def is_absent(self) -> bool:
        """True if its actor has to open it again before any other call."""
        return self.is_awaited or self.is_away

    @property
    def takes_credit(self) -> bool:
        """False once it has left the distribution of credit; its streams may still be open and get nothing more."""
        return not (self.has_ended or self.is_away)

    @property
    def next_sequence(self) -> int:
        """Sequence of the next chunk."""
        return self.acked_through + 1

    @property
    def produced_steps(self) -> int:
        """Steps taken, all behaviors together."""
        return sum(account.produced_steps for account in self.accounts.values())

    @property
    def actor(self) -> Actor:
        """The actor, as described to the trainers; the same object as before if nothing has changed."""
        known = self._actor
        if known is None or not self._is_as(known):
            known = self._actor = Actor(
                session_id=self.session_id,
                name=self.actor_name,
                actor_index=self.actor_index,
                is_connected=self.is_connected,
                agents={index: max(1, account.agents) for index, account in self.accounts.items()},
                teams={index: tuple(sorted(account.teams)) for index, account in self.accounts.items()},
                opponent=self.opponent,
                opponent_by_seat=self.opponent_by_seat,
                principal=self.principal,
            )
        return known

    def _is_as(self, known: Actor) -> bool:
        """Returns whether a description still holds, without an allocation: the service asks a thousand sessions a second."""
        if known.is_connected is not self.is_connected or known.opponent != self.opponent:
            return False
        if known.opponent_by_seat is not self.opponent_by_seat:
            return False
        if len(known.agents) != len(self.accounts):
            return False
        for index, account in self.accounts.items():  # accounts and their teams are added, never removed
            if known.agents.get(index) != max(1, account.agents) or len(known.teams[index]) != len(account.teams):
                return False
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain values, for a checkpoint."""
        saved = (*_SAVED_TEXTS, *_SAVED_COUNTS, "is_rolled_back", "principal")
        accounts = [account.state_dict() for account in self.accounts.values()]
        return {name: getattr(self, name) for name in saved} | {"accounts": accounts}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        accounts: Iterable[Account],
        *,
        lease_until: float,
        last_seen: float,
        opened_at: float,
    ) -> Self:
        """Creates an awaited session from a checkpoint, with accounts from the same checkpoint.

        Raises:
            KeyError, ValueError: The state is invalid.
        """
        texts: dict[str, Any] = {name: text(state, name) for name in _SAVED_TEXTS}
        counts: dict[str, Any] = {name: count(state, name, most=most) for name, most in _SAVED_COUNTS.items()}
        return cls(
            **texts,
            **counts,
            is_rolled_back=flag(state, "is_rolled_back"),
            principal=text(state, "principal"),
            accounts={account.index: account for account in accounts},
            lease_until=lease_until,
            last_seen=last_seen,
            opened_at=opened_at,
            is_awaited=True,
        )

    def note_environments(self, state: EnvironmentState) -> None:
        """Stores the state of the actor's environments; store the counters of the same report first."""
        reports = [account.counters for account in self.accounts.values() if account.counters is not None]
        self.environments.add(
            state,
            self.actor_name,
            self.last_seen,
            discarded_steps=sum(report.discarded.get("env_error", 0) for report in reports),
            produced_steps=sum(report.produced for report in reports),
        )

    def complaint(self, now: float) -> str:
        """Returns the worst current problem of the actor, its environments' or its policies'; empty if there is none."""
        return self.environments.complaint(now) or next((each.error for each in self.policies if each.error), "")

    def note_policies(
        self, policies: Iterable[PolicyState], newest: Callable[[str], int | None], generation: int
    ) -> None:
        """Stores which policies act at the actor, and their lag behind the newest published versions.

        The lag is computed here and not when it is read, because versions published after a report say nothing about
        it.

        Args:
            policies: Reported policies; those of undeclared behaviors are skipped.
            newest: Returns the newest published version of a behavior, None before the first.
            generation: Generation of the learner; policies of other generations are not compared.
        """
        # At most one per declared behavior: operators see this list, and a longer one could exceed a message.
        known = {policy.behavior_index: policy for policy in policies if policy.behavior_index in self.accounts}
        self.policies = tuple(known.values())
        lags = [
            max(0, version - policy.version)
            for policy in self.policies
            if policy.generation == generation
            and (version := newest(self.accounts[policy.behavior_index].behavior)) is not None
        ]
        self.policy_lag = max(lags, default=None)


def reasons_from(counts: Collection[session_pb2.ReasonCount]) -> dict[str, int]:
    """Decodes a list of counts by reason.

    Raises:
        BadRequest: A reason is unknown to the ledger, there are too many, or their sum is out of bounds.
    """
    if len(counts) > MAX_REASONS:
        raise BadRequest(f"{len(counts)} reasons in one list; at most {MAX_REASONS} are allowed")
    found: dict[str, int] = {}
    for told in counts:
        if REASON_PATTERN.fullmatch(told.reason) is None:
            raise BadRequest(
                f"{told.reason[:64]!r} is not a valid reason: use lower-case letters, digits and underscores"
            )
        found[told.reason] = found.get(told.reason, 0) + told.steps
    if sum(found.values()) > MAX_STEPS:
        raise BadRequest(f"{sum(found.values())} steps in one list of reasons; at most {MAX_STEPS} are allowed")
    return found


def check_agents(agents: int) -> None:
    """Refuses a number of agents that no actor can have.

    Raises:
        BadRequest: The number is too large.
    """
    if agents > MAX_AGENTS:
        raise BadRequest(f"{agents} agents of one behavior in one actor; at most {MAX_AGENTS} are allowed")
