"""Watches the players of one actor: who fails is started again, alone, while the others play on.

A player fails if its process ends, if it never calls, if it owes a message for too long, or if it was refused. Beyond
its restarts the actor ends.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from actor_client.exits import ActorError, ExitCode
from actor_client.unity.conversation import Conversation, Phase
from actor_client.unity.players.process import PlayerProcess
from actor_client.unity.players.rules import PlayerRules

LOOK_SECONDS: Final = 0.05
STALL_SECONDS: Final = 2.0
"""If the supervisor itself stood still for so long, what players owe counts from its return."""
HASTE_SECONDS: Final = 0.5
"""So long a player that failed as soon as it was started waits for its next start: without limits it would not end."""
LINGER_SECONDS: Final = 10.0
"""How long a player that closed its connection may take to end."""


class PlayerSupervisor:
    """Starts players, and watches them in a thread of its own.

    Args:
        players: One a worker, in their order.
        conversations: With them, likewise.
        rules: Time-out and restarts.
        on_lost: Called with the worker of a player that failed, to give up its open rows.
        on_failure: Called once with the error that ends the actor, in the supervisor's thread.
        is_over: Whether the actor ends: then players that end are no failures.
        clock: Monotonic seconds; the conversations have the same.

    Attributes:
        restarts: How often players were started again, all together.
    """

    def __init__(
        self,
        players: Sequence[PlayerProcess],
        conversations: Sequence[Conversation],
        rules: PlayerRules,
        *,
        on_lost: Callable[[int], None],
        on_failure: Callable[[ActorError], None],
        is_over: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.restarts = 0
        self._watched = [
            _Watched(player, conversation, rules.timeout_seconds, clock)
            for player, conversation in zip(players, conversations, strict=True)
        ]
        self._quotas = [rules.quota() for _ in players]
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._is_over = is_over
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rollcast-players", daemon=True)
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Starts all players; their ports must listen.

        Raises:
            ActorError: One cannot be started (UNKNOWN_ENVIRONMENT).
        """
        for each in self._watched:
            each.start()
        self._log.info("players_started", number=len(self._watched), pids=[each.player.pid for each in self._watched])
        self._thread.start()

    def rest(self) -> None:
        """Stops watching: players that end from now on are no failures, and whoever uses them ends them."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        """The thread."""
        looked = self._clock()
        while not self._stopping.wait(LOOK_SECONDS):
            now = self._clock()
            if now - looked > STALL_SECONDS:
                for each in self._watched:
                    each.excuse(now)
            looked = now
            for index, each in enumerate(self._watched):
                fault = each.fault()
                if fault is not None and not self._stopping.is_set() and not self._is_over():
                    try:
                        self._begin_again(index, fault)
                    except ActorError as error:
                        self._on_failure(error)
                        return

    def _begin_again(self, worker: int, fault: str) -> None:
        """Gives up what a player had open, and starts it again.

        Raises:
            ActorError: It may not be started again (ENVIRONMENT_FAILED), or cannot.
        """
        each, quota = self._watched[worker], self._quotas[worker]
        never_fits = each.was_refused_at_once
        each.player.end_at_once()
        self._on_lost(worker)
        each.conversation.forget()
        refusal = "another start would not help" if never_fits else quota.refusal()
        if refusal is not None:
            raise ActorError(
                ExitCode.ENVIRONMENT_FAILED, f"player {worker} {fault}. It is not started again: {refusal}"
            )
        quota.count()
        self.restarts += 1
        self._log.warning("player_restarts", worker=worker, restart=quota.restarts, reason=fault)
        if each.age_seconds < HASTE_SECONDS:
            self._stopping.wait(HASTE_SECONDS)
        if not self._stopping.is_set():
            each.start()


class _Watched:
    """One player, and what is known of its present process."""

    def __init__(
        self, player: PlayerProcess, conversation: Conversation, timeout_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.player = player
        self.conversation = conversation
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._since = self._started = clock()
        self._closed_at: float | None = None
        self._has_played = False

    def start(self) -> None:
        """Starts its process.

        Raises:
            ActorError: It cannot be started.
        """
        self._closed_at = None
        self._has_played = False
        self.player.start()
        self._since = self._started = self._clock()

    def excuse(self, now: float) -> None:
        """Counts from now what it owes."""
        self._since = now

    @property
    def age_seconds(self) -> float:
        """Time since its process was started."""
        return self._clock() - self._started

    @property
    def was_refused_at_once(self) -> bool:
        """True if it was refused before it ever played: it would be again."""
        return bool(self.conversation.fault) and not self._has_played

    def fault(self) -> str | None:
        """Returns what is wrong with it, after `player N `; None if nothing is."""
        now, player, phase = self._clock(), self.player, self.conversation.phase
        self._has_played |= phase is Phase.RUNNING
        if self.conversation.fault:
            return f"was refused: {self.conversation.fault}"
        how = player.how_it_ended()
        if how is not None:
            # Looked at again: it may have said goodbye since, and what it said is taken in another thread.
            phase = self.conversation.phase
            return ended(
                how,
                player.last_words(),
                player.log,
                has_called=phase is not Phase.WAITING,
                said_so=phase is Phase.CLOSED,
            )
        if phase is Phase.CLOSED:
            self._closed_at = now if self._closed_at is None else self._closed_at
            late = now - self._closed_at > LINGER_SECONDS
            return lingers(LINGER_SECONDS, player.log) if late else None
        since = self._since if phase is Phase.WAITING else self.conversation.waiting_since
        if since is None or now - max(since, self._since) <= self._timeout_seconds:
            return None
        if phase is Phase.WAITING:
            return never_connected(self._timeout_seconds, player.port, player.log)
        return fell_silent(self._timeout_seconds, player.log)


def never_connected(seconds: float, port: int, log: Path | None) -> str:
    """Says that a player runs and has not called.

    Args:
        seconds: How long it was waited for.
        port: Where.
        log: Of the player.
    """
    return (
        f"has not called port {port} within {seconds:g} s. Usual causes: it was built without ML-Agents, or its scene has "
        "no agent; another port (--mlagents-port among --env-args); it needs graphics that are not there "
        "(try --no-graphics), or needs them and was started with --no-graphics; it takes longer to load (raise "
        f"--timeout-wait){_see(log)}"
    )


def fell_silent(seconds: float, log: Path | None) -> str:
    """Says that a player which has called sends nothing more.

    Args:
        seconds: How long it was waited for.
        log: Of the player.
    """
    return (
        f"is connected, and has sent nothing for {seconds:g} s. Usual causes: no agent asks for decisions (add a "
        "DecisionRequester to it, or call RequestDecision); Behavior Type is Heuristic Only or Inference Only, where it "
        "must be Default; it hangs, or was stopped; it needs graphics that are not there (try --no-graphics), or needs "
        "them and was started with --no-graphics; a scene takes longer to load, or a step to simulate (raise "
        f"--timeout-wait){_see(log)}"
    )


def ended(how: str, last_words: str, log: Path | None, *, has_called: bool, said_so: bool) -> str:
    """Says that a player's process has ended.

    Args:
        how: Exit code or signal, in words.
        last_words: The last line it wrote, if any.
        log: Of the player.
        has_called: It was connected.
        said_so: It closed the connection first, as a player does that quits by itself.
    """
    when = "quit by itself: it closed the connection and " if said_so else "" if has_called else "never connected: it "
    words = f"; its last output: {last_words}" if last_words else ""
    return f"{when}{how}{words}{_see(log)}"


def lingers(seconds: float, log: Path | None) -> str:
    """Says that a player closed the connection, and its process did not end.

    Args:
        seconds: How long it was waited for.
        log: Of the player.
    """
    return f"closed the connection, and its process went on for {seconds:g} s{_see(log)}"


def _see(log: Path | None) -> str:
    return f". See {log}" if log is not None else ""
