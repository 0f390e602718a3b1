"""What the learner knows of one actor: its session, and its accounts with the behaviors it declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from rollcast.errors import BadRequest
from rollcast.limits import MAX_REASONS, MAX_STEPS, REASON_PATTERN
from rollcast.v1 import session_pb2

from learner.common.saved_values import MAX_CLAIMED, MAX_COUNT, count, flag, text
from learner.ingest.credit import MAX_GRANT, Share, step_allowance
from learner.ingest.times import TimesWindow

MAX_LOST_STEPS = 2**32
"""What an actor may claim to have lost, of one behavior, with a learner that went down. Nobody can check it. An actor of
50,000 steps a second needs a whole day without a checkpoint for so many; by default one is written every minute."""
MAX_REPORTED = 2**64 - 1
"""The largest count a message holds."""
MAX_PLACE = 2**32 - 1
"""The largest place in the run that a message holds."""
MAX_AGENTS = 2**20
MAX_ERROR_CHARACTERS = 512
_COUNTED_STEPS = ("produced", "open", "unacked", "acked", "ghost")


@dataclass(frozen=True, slots=True)
class ActorCounters:
    """An actor's own books of one behavior, cumulative over the session; see ActorBooks in session.proto."""

    behavior_index: int
    produced: int = 0
    open: int = 0
    discarded: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    unacked: int = 0
    acked: int = 0
    ghost: int = 0
    agents: int = 0

    @classmethod
    def from_message(cls, message: session_pb2.ActorBooks) -> Self:
        """Decodes and checks an actor's report.

        Raises:
            BadRequest: a counter is out of bounds, or a reason is no word of the books.
        """
        steps = {name: getattr(message, f"{name}_steps") for name in _COUNTED_STEPS}
        discarded, dropped = reasons_from(message.discarded), reasons_from(message.dropped)
        counters = cls(message.behavior_index, agents=message.agents, discarded=discarded, dropped=dropped, **steps)
        largest = max(steps.values())
        if largest > MAX_STEPS:
            raise BadRequest(
                f"a counter of behavior {message.behavior_index} is {largest}; at most {MAX_STEPS} is sane"
            )
        check_agents(counters.agents)
        return counters

    def to_message(self) -> session_pb2.ActorBooks:
        """Encodes."""
        steps: dict[str, Any] = {f"{name}_steps": getattr(self, name) for name in _COUNTED_STEPS}
        return session_pb2.ActorBooks(
            behavior_index=self.behavior_index,
            discarded=reasons_to(self.discarded),
            dropped=reasons_to(self.dropped),
            agents=self.agents,
            **steps,
        )


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What acts at an actor; see PolicyReport in session.proto."""

    behavior_index: int
    generation: int
    version: int
    error: str = ""

    @classmethod
    def from_message(cls, message: session_pb2.PolicyReport) -> Self:
        """Decodes; a long error is cut."""
        return cls(message.behavior_index, message.generation, message.version, message.error[:MAX_ERROR_CHARACTERS])

    def to_message(self) -> session_pb2.PolicyReport:
        """Encodes."""
        return session_pb2.PolicyReport(
            behavior_index=self.behavior_index, generation=self.generation, version=self.version, error=self.error
        )


@dataclass(slots=True, eq=False)
class Account:
    """One session's account with one behavior. All counts are cumulative over the session.

    Attributes:
        behavior: the behavior's name.
        index: its index.
        time_horizon: its longest segment.
        max_chunk_bytes: the allowance in bytes.
        teams: agents that it declared, by team.
        agents: agents that act at present, all teams together.
        produced_steps: taken by the actor, as far as it said.
        received_steps: in chunks that were settled here, refused ones included; duplicates are not.
        received_bytes: encoded size of those chunks.
        acked_steps: acked, as far as the actor said.
        discarded_steps: given up before they became part of a chunk, as far as the actor said.
        dropped_steps: given up afterwards, as far as the actor said.
        given_up_floor: what it will have given up once it has done what a resumption asks of it.
        twice_steps: both received here and given up there: their ack was lost with the learner's last process.
        granted_steps: the last grant.
        granted_bytes: the last grant.
        is_byte_limited: False after a rollback: nobody knows then how many bytes the actor has sent, and a limit that
            is too low would stop it for good. The queue's capacity is then kept by not reading from the network.
        counters: the actor's last report.
    """

    behavior: str
    index: int
    time_horizon: int
    max_chunk_bytes: int
    teams: dict[int, int] = field(default_factory=dict)
    agents: int = 0
    produced_steps: int = 0
    received_steps: int = 0
    received_bytes: int = 0
    acked_steps: int = 0
    discarded_steps: int = 0
    dropped_steps: int = 0
    given_up_floor: int = 0
    twice_steps: int = 0
    granted_steps: int = 0
    granted_bytes: int = 0
    is_byte_limited: bool = True
    counters: ActorCounters | None = None

    def report(self, counters: ActorCounters) -> None:
        """Takes in an actor's report. Counters never fall: a late report changes nothing."""
        self.counters = counters
        self.produced_steps = max(self.produced_steps, counters.produced)
        self.acked_steps = max(self.acked_steps, counters.acked)
        self.discarded_steps = max(self.discarded_steps, sum(counters.discarded.values()))
        self.dropped_steps = max(self.dropped_steps, sum(counters.dropped.values()))
        if counters.agents:
            self.agents = counters.agents

    def roll_back(self, counters: ActorCounters) -> int:
        """Takes in the report of an actor that comes back to a learner started anew from a checkpoint.

        What is open or unacked there counts as given up, since a new generation makes the actor drop it. Its reports
        catch up later; until then, credit that ignored these steps would leave the actor stuck.

        Returns:
            Steps that were acked after the checkpoint and so are lost, at most `MAX_LOST_STEPS`; they count as received
            from now on.
        """
        self.report(counters)
        self.given_up_floor = max(self.given_up_floor, counters.produced - counters.acked)
        self.is_byte_limited = False
        lost_steps = min(max(0, counters.acked - (self.received_steps - self.twice_steps)), MAX_LOST_STEPS)
        self.received_steps += lost_steps
        self.twice_steps = max(0, self.received_steps - counters.acked)
        return lost_steps

    @property
    def step_share(self) -> Share:
        """The account in steps, for credit."""
        received = max(self.received_steps - self.twice_steps, self.acked_steps)
        given_up = max(self.discarded_steps + self.dropped_steps, self.given_up_floor)
        return Share(received + given_up, step_allowance(self.agents, self.time_horizon), self.granted_steps)

    @property
    def byte_share(self) -> Share:
        """The account in bytes, for credit."""
        settled = self.received_bytes if self.is_byte_limited else MAX_GRANT
        return Share(settled, self.max_chunk_bytes, self.granted_bytes)

    def is_covered(self, more_steps: int) -> bool:
        """Says whether credit was granted for so many more received steps.

        What the actor has produced is at least what it sent and gave up, and it must not pass `granted_steps`. The grant
        is noted before it is sent and never falls, so an actor that obeys is always covered. One more allowance is
        there for steps that an actor takes in the moment in which its credit changes.
        """
        share = self.step_share
        return share.settled + more_steps <= share.granted + share.allowance

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts as plain values, for a checkpoint."""
        saved = (*_SAVED_ACCOUNT_COUNTS, "behavior", "is_byte_limited")
        return {name: getattr(self, name) for name in saved} | {"teams": dict(self.teams)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Makes an account from a checkpoint.

        Raises:
            KeyError, TypeError, ValueError: it is not what was saved.
        """
        values = {"twice_steps": 0} | state  # checkpoints of earlier builds lack it
        teams = state["teams"]
        counts: dict[str, Any] = {name: count(values, name, most=MAX_CLAIMED) for name in _SAVED_ACCOUNT_COUNTS}
        return cls(
            behavior=text(values, "behavior"),
            teams={int(team): count(teams, team) for team in teams},
            is_byte_limited=flag(values, "is_byte_limited"),
            **counts,
        )


_SAVED_ACCOUNT_COUNTS = (
    *("index", "time_horizon", "max_chunk_bytes", "agents"),
    *("produced_steps", "received_steps", "received_bytes", "acked_steps", "discarded_steps", "dropped_steps"),
    *("given_up_floor", "twice_steps", "granted_steps", "granted_bytes"),
)


@dataclass(slots=True, eq=False)
class ActorSession:
    """One actor's place in the run.

    Attributes:
        session_id: names it.
        epoch: grows with each opening; older ones are fenced.
        actor_name: as the actor calls itself; may repeat.
        instance_id: of the actor's process.
        actor_index: its place, from 0.
        generation: of the learner when it was last opened.
        lease_until: monotonic seconds; it expires then.
        last_seen: monotonic seconds.
        acked_through: every chunk up to this sequence is settled.
        accounts: by behavior index.
        policies: what acts there, as last reported.
        policy_lag: by how many versions that was older than the newest, when it was reported, the most over its
            behaviors; None before anything was reported that can be compared.
        times: where its actor's time goes, lately.
        replaces: the session that the actor asked for when it got this one.
        is_rolled_back: it came back to a learner started anew; see `Account.is_byte_limited`.
        is_awaited: it came from a checkpoint and its actor has not come back.
        is_connected: its upload stream is open.
        had_stream: its upload stream was open at some time in this process.
    """

    session_id: str
    epoch: int
    actor_name: str
    instance_id: str
    actor_index: int
    generation: int
    lease_until: float
    last_seen: float
    acked_through: int = 0
    accounts: dict[int, Account] = field(default_factory=dict)
    policies: tuple[PolicyState, ...] = ()
    policy_lag: int | None = None
    times: TimesWindow = field(default_factory=TimesWindow)
    replaces: str = ""
    is_rolled_back: bool = False
    is_awaited: bool = False
    is_connected: bool = False
    had_stream: bool = False

    @property
    def is_unused(self) -> bool:
        """True if nothing was sent in it: an actor that did not hear the answer may have it again."""
        return self.acked_through == 0 and not self.had_stream

    @property
    def next_sequence(self) -> int:
        """The sequence of the next chunk."""
        return self.acked_through + 1

    @property
    def produced_steps(self) -> int:
        """Steps taken, all behaviors together."""
        return sum(account.produced_steps for account in self.accounts.values())

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as plain values."""
        saved = (*_SAVED_TEXTS, *_SAVED_COUNTS, "is_rolled_back")
        accounts = [account.state_dict() for account in self.accounts.values()]
        return {name: getattr(self, name) for name in saved} | {"accounts": accounts}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], accounts: Iterable[Account], *, lease_until: float, last_seen: float
    ) -> Self:
        """Makes a session of a checkpoint, which is awaited, with accounts made of that state.

        Raises:
            KeyError, ValueError: it is not what was saved.
        """
        texts: dict[str, Any] = {name: text(state, name) for name in _SAVED_TEXTS}
        counts: dict[str, Any] = {name: count(state, name, most=most) for name, most in _SAVED_COUNTS.items()}
        return cls(
            **texts,
            **counts,
            is_rolled_back=flag(state, "is_rolled_back"),
            accounts={account.index: account for account in accounts},
            lease_until=lease_until,
            last_seen=last_seen,
            is_awaited=True,
        )

    def note_policies(
        self, policies: Iterable[PolicyState], newest: Callable[[str], int | None], generation: int
    ) -> None:
        """Takes in what acts at the actor, and by how many versions it is older than what is published now.

        The difference is taken here and not when somebody asks: versions that came since a report say nothing of it.

        Args:
            policies: as reported; what names no declared behavior is left out.
            newest: the newest published version of a behavior, None before the first.
            generation: of the learner; what acts of another one is not compared.
        """
        # One for each declared behavior: a list of any length, kept for all to see, could grow past any message.
        known = {policy.behavior_index: policy for policy in policies if policy.behavior_index in self.accounts}
        self.policies = tuple(known.values())
        lags = [
            max(0, version - policy.version)
            for policy in self.policies
            if policy.generation == generation
            and (version := newest(self.accounts[policy.behavior_index].behavior)) is not None
        ]
        self.policy_lag = max(lags, default=None)


_SAVED_TEXTS = ("session_id", "actor_name", "instance_id", "replaces")
_SAVED_COUNTS: Mapping[str, int] = MappingProxyType(
    {"epoch": MAX_CLAIMED, "actor_index": MAX_PLACE, "generation": MAX_COUNT, "acked_through": MAX_CLAIMED}
)
"""With the most that each may be."""


def reasons_from(counts: Iterable[session_pb2.ReasonCount]) -> dict[str, int]:
    """Decodes a list of counts by reason.

    Raises:
        BadRequest: a reason is no word of the books, there are too many, or their sum is out of bounds.
    """
    found: dict[str, int] = {}
    for told in counts:
        if REASON_PATTERN.fullmatch(told.reason) is None:
            raise BadRequest(f"{told.reason[:64]!r} is no reason: use lower-case letters, digits and underscores")
        found[told.reason] = found.get(told.reason, 0) + told.steps
        if len(found) > MAX_REASONS:
            raise BadRequest(f"more than {MAX_REASONS} different reasons in one list")
    if sum(found.values()) > MAX_STEPS:
        raise BadRequest(f"{sum(found.values())} steps in one list of reasons; at most {MAX_STEPS} are sane")
    return found


def reasons_to(counts: dict[str, int]) -> list[session_pb2.ReasonCount]:
    """Encodes counts by reason, in the order of the reasons."""
    return [session_pb2.ReasonCount(reason=reason, steps=shown(steps)) for reason, steps in sorted(counts.items())]


def shown(count: int) -> int:
    """Returns a count as a message can hold it: what strangers claim may add up to more."""
    return min(max(0, count), MAX_REPORTED)


def check_agents(agents: int) -> None:
    """Refuses a number of agents that no actor can have.

    Raises:
        BadRequest: it is too large.
    """
    if agents > MAX_AGENTS:
        raise BadRequest(f"{agents} agents of one behavior at one actor; at most {MAX_AGENTS} are allowed")
