"""Watches the players of one actor and restarts those that fail, while the others continue.

A player fails if its process ends, if it never calls, if its next message is overdue, or if it was refused. When the
restarts are used up, the actor ends.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from actor_client.builds.process import PlayerProcess
from actor_client.exits import ActorError, ExitCode
from actor_client.unity.conversation import Conversation, Phase
from actor_client.unity.players.rules import PlayerRules

LOOK_SECONDS: Final = 0.05
STALL_SECONDS: Final = 2.0
"""If the supervisor itself was suspended for this long, the players' time-outs start again."""
HASTE_SECONDS: Final = 0.5
"""Seconds before the restart of a player that failed at once; without limits it would fail in a tight loop."""
LINGER_SECONDS: Final = 10.0
"""Seconds a player that closed its connection may take to end."""


class PlayerSupervisor:
    """Starts players, and watches them in a thread.

    Args:
        players: The players, in the order of their workers.
        conversations: The players' conversations, in the same order.
        rules: Time-out and restarts.
        on_lost: Called with the worker and the fault of a player that failed; discards its open rows.
        on_failure: Called once with the error that ends the actor, in the supervisor's thread.
        is_over: Returns whether the actor is ending; players that end then have not failed.
        clock: Monotonic seconds; the clock of the conversations too.

    Attributes:
        restarts: Restarts of all players.
    """

    def __init__(
        self,
        players: Sequence[PlayerProcess],
        conversations: Sequence[Conversation],
        rules: PlayerRules,
        *,
        on_lost: Callable[[int, str], None],
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
            ActorError: A player cannot be started (UNKNOWN_ENVIRONMENT).
        """
        for each in self._watched:
            each.start()
        self._log.info("players_started", number=len(self._watched), pids=[each.player.pid for each in self._watched])
        self._thread.start()

    def rest(self) -> None:
        """Stops watching: players that end from now on have not failed, and the caller ends the others."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        """Runs in the supervisor's thread."""
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
        """Discards a player's open rows, and restarts it.

        Raises:
            ActorError: It may not be restarted (ENVIRONMENT_FAILED), or cannot be.
        """
        each, quota = self._watched[worker], self._quotas[worker]
        never_fits = each.was_refused_at_once
        each.player.end_at_once()
        self._on_lost(worker, fault)
        each.conversation.forget()
        refusal = "a restart would not help" if never_fits else quota.refusal()
        if refusal is not None:
            raise ActorError(ExitCode.ENVIRONMENT_FAILED, f"player {worker} {fault}. It is not restarted: {refusal}")
        quota.count()
        self.restarts += 1
        self._log.warning("player_restarts", worker=worker, restart=quota.restarts, reason=fault)
        if each.age_seconds < HASTE_SECONDS:
            self._stopping.wait(HASTE_SECONDS)
        if not self._stopping.is_set():
            each.start()


class _Watched:
    """One player, and the state of its present process."""

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
        """Starts the player's process.

        Raises:
            ActorError: It cannot be started.
        """
        self._closed_at = None
        self._has_played = False
        self.player.start()
        self._since = self._started = self._clock()

    def excuse(self, now: float) -> None:
        """Restarts the player's time-out at `now`."""
        self._since = now

    @property
    def age_seconds(self) -> float:
        """Seconds since the process was started."""
        return self._clock() - self._started

    @property
    def was_refused_at_once(self) -> bool:
        """True if the player was refused before its first step: it would be refused again."""
        return bool(self.conversation.fault) and not self._has_played

    def fault(self) -> str | None:
        """Returns the player's fault, worded to follow `player N `; None if there is none."""
        now, player, phase = self._clock(), self.player, self.conversation.phase
        self._has_played |= phase is Phase.RUNNING
        if self.conversation.fault:
            return f"was refused: {self.conversation.fault}"
        how = player.how_it_ended()
        if how is not None:
            # Checked again: the player may have left since, and another thread handles its messages.
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
    """Returns the message for a player that runs but has not called.

    Args:
        seconds: Seconds waited.
        port: The port it should call.
        log: The path of the player's log.
    """
    return (
        f"has not connected to port {port} within {seconds:g} s. Usual causes: it was built without ML-Agents, or "
        "its scene has no agent; it uses another port (--mlagents-port in --env-args); this machine has no "
        "graphics (try --no-graphics), or the player needs graphics and was started with --no-graphics; it takes "
        f"longer to load (raise --timeout-wait){_see(log)}"
    )


def fell_silent(seconds: float, log: Path | None) -> str:
    """Returns the message for a player that has called and now sends nothing.

    Args:
        seconds: Seconds waited.
        log: The path of the player's log.
    """
    return (
        f"is connected, but has sent nothing for {seconds:g} s. Usual causes: no agent requests decisions (add a "
        "DecisionRequester to it, or call RequestDecision); Behavior Type is Heuristic Only or Inference "
        "Only instead of Default; it hangs, or was stopped; this machine has no graphics (try --no-graphics), or "
        "the player needs graphics and was started with --no-graphics; loading a scene or simulating a step "
        f"takes longer (raise --timeout-wait){_see(log)}"
    )


def ended(how: str, last_words: str, log: Path | None, *, has_called: bool, said_so: bool) -> str:
    """Returns the message for a player whose process has ended.

    Args:
        how: Exit code or signal, in words.
        last_words: The last line it wrote, if any.
        log: The path of the player's log.
        has_called: The player had connected.
        said_so: The player closed the connection first, as it does when it quits by itself.
    """
    when = "quit by itself: it closed the connection and " if said_so else "" if has_called else "never connected: it "
    words = f"; its last output: {last_words}" if last_words else ""
    return f"{when}{how}{words}{_see(log)}"


def lingers(seconds: float, log: Path | None) -> str:
    """Returns the message for a player that closed the connection while its process still runs.

    Args:
        seconds: Seconds waited.
        log: The path of the player's log.
    """
    return f"closed the connection, but its process kept running for {seconds:g} s{_see(log)}"


def _see(log: Path | None) -> str:
    return f". See {log}" if log is not None else ""
