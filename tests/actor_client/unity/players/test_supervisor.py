"""Tests players that fail in every way, and their restarts, with simulated processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actor_client.exits import ActorError, ExitCode
from actor_client.unity.conversation import Conversation, Phase
from actor_client.unity.mailbox import Mailbox
from actor_client.unity.players import supervisor
from actor_client.unity.players.rules import PlayerRules
from actor_client.unity.players.supervisor import LINGER_SECONDS, PlayerSupervisor
from tests.actor_client.unity.players.programs import eventually

KILLED = "was ended by SIGKILL (killed)"
EXIT_4 = "ended with exit code 4"
LOG = Path("/logs/Player-0.log")


class Player:
    """A player without a process.

    Attributes:
        starts: How often it was started.
        ends: How a process that is started ends at once; None = it runs.
        how: How the present process ended; None = it runs.
        words: Its last output.
    """

    log = LOG

    def __init__(self, worker: int) -> None:
        self.port = 5005 + worker
        self.starts = 0
        self.ends: str | None = None
        self.how: str | None = None
        self.words = ""

    @property
    def pid(self) -> int:
        """Returns another number after each start."""
        return self.starts

    def start(self) -> None:
        """Starts it."""
        self.starts += 1
        self.how = self.ends

    def how_it_ended(self) -> str | None:
        """Returns what the test says."""
        return self.how

    def last_words(self) -> str:
        """Returns what the test says."""
        return self.words

    def end_at_once(self) -> None:
        """Ends it."""
        self.how = self.how or KILLED


class Scene:
    """Players under a supervisor, whose clock the test sets unless the supervisor's thread runs.

    Attributes:
        players: The players.
        conversations: With the players.
        lost: Workers of lost players, in their order.
        failures: Errors that would have ended the actor.
        is_over: Whether the actor ends.
    """

    def __init__(self, number: int, restarts: int, rate: int) -> None:
        self.now = 1000.0
        self.players: Any = [Player(worker) for worker in range(number)]
        self.conversations = [Conversation(worker, Mailbox(), clock=lambda: self.now) for worker in range(number)]
        self.lost: list[int] = []
        self.failures: list[ActorError] = []
        self.is_over = False
        self.supervisor = PlayerSupervisor(
            self.players,
            self.conversations,
            PlayerRules(60.0, restarts, rate, 60.0, (), no_graphics=False, no_graphics_monitor=False),
            on_lost=lambda worker, _: self.lost.append(worker),
            on_failure=self.failures.append,
            is_over=lambda: self.is_over,
            clock=lambda: self.now,
        )

    def fault(self) -> str | None:
        """Returns what is wrong with the first player."""
        return self.supervisor._watched[0].fault()

    def failure(self) -> str:
        """Waits for what ends the actor."""
        eventually(lambda: bool(self.failures), "a failure")
        (error,) = self.failures
        assert error.exit_code is ExitCode.ENVIRONMENT_FAILED
        assert "\n" not in error.message
        return error.message


@contextmanager
def scene(number: int = 1, *, restarts: int = 0, rate: int = -1, ends: str | None = None) -> Iterator[Scene]:
    """Starts players and watches them."""
    made = Scene(number, restarts, rate)
    for player in made.players:
        player.ends = ends
    try:
        made.supervisor.start()
        yield made
    finally:
        made.supervisor.rest()


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets players that fail at once begin again at once."""
    monkeypatch.setattr(supervisor, "HASTE_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("phase", "how", "words", "said"),
    [
        (Phase.WAITING, "ended with exit code 3", "", f"never connected: it ended with exit code 3. See {LOG}"),
        (Phase.WAITING, KILLED, "no libfoo", f"never connected: it {KILLED}; its last output: no libfoo. See {LOG}"),
        (Phase.RUNNING, "ended with exit code 3", "", f"ended with exit code 3. See {LOG}"),
        (Phase.CLOSED, "ended with exit code 0", "", "quit by itself: it closed the connection and ended with"),
    ],
)
def test_an_end_is_told_with_what_came_before(phase: Phase, how: str, words: str, said: str) -> None:
    """A player that ended is reported with exit code or signal, its last output, and whether it had called."""
    made = Scene(1, 0, -1)
    made.conversations[0].phase, made.players[0].how, made.players[0].words = phase, how, words
    found = made.fault()
    assert found is not None
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("phase", "since", "said"),
    [
        (Phase.WAITING, 1000.0, "has not connected to port 5005 within 60 s"),
        (Phase.GREETED, 1000.0, "is connected, but has sent nothing for 60 s"),
        (Phase.RUNNING, 1000.0, "is connected, but has sent nothing for 60 s"),
        (Phase.RUNNING, None, None),  # it waits for the learner
    ],
)
def test_silence_is_a_fault_of_who_owes_a_message(phase: Phase, since: float | None, said: str | None) -> None:
    """A player that calls or continues too late has failed; one that is owed an answer never has."""
    made = Scene(1, 0, -1)
    made.conversations[0].phase, made.conversations[0].waiting_since = phase, since
    made.now += 60.0
    assert made.fault() is None
    made.now += 0.1
    assert (made.fault() or "").startswith(said or "")
    made.supervisor._watched[0].excuse(made.now)
    made.now += 60.0
    assert made.fault() is None


def test_a_player_that_has_left_may_end_for_a_while() -> None:
    """A player that closed its connection has some seconds to end."""
    made = Scene(1, 0, -1)
    made.conversations[0].phase = Phase.CLOSED
    assert made.fault() is None
    made.now += LINGER_SECONDS
    assert made.fault() is None
    made.now += 0.1
    assert "its process kept running for 10 s" in (made.fault() or "")


@pytest.mark.parametrize("has_played", [False, True])
def test_a_player_that_was_refused_at_once_is_not_started_again(has_played: bool) -> None:
    """A player that was refused before its first step would be refused again; a later refusal costs a restart."""
    with scene(restarts=1) as made:
        if has_played:
            made.conversations[0].phase = Phase.RUNNING
            eventually(lambda: made.supervisor._watched[0]._has_played, "a look")
        made.conversations[0].fault = "it uses version '9.0.0'"
        if has_played:
            eventually(lambda: made.supervisor.restarts == 1, "a restart")
            assert not made.failures
        else:
            text = made.failure()
            assert "player 0 was refused: it uses version '9.0.0'. It is not restarted: a restart would not" in text
            assert made.players[0].how == KILLED


def test_only_the_player_that_failed_is_started_again() -> None:
    """Only the failed player is restarted, with a new conversation."""
    with scene(2, restarts=1) as made:
        for conversation in made.conversations:
            conversation.phase = Phase.GREETED
        made.players[1].how = KILLED
        eventually(lambda: made.players[1].starts == 2, "a restart")
        assert (made.lost, made.supervisor.restarts, made.failures) == ([1], 1, [])
        assert made.players[0].starts == 1
        assert [each.phase for each in made.conversations] == [Phase.GREETED, Phase.WAITING]


@pytest.mark.parametrize(
    ("limits", "starts", "said"),
    [
        ({}, 1, "max_lifetime_restarts is 0"),
        ({"restarts": 2}, 3, "it was restarted 2 times, and max_lifetime_restarts is 2"),
        ({"restarts": -1, "rate": 1}, 2, "restarted 1 times within 60 s, and restarts_rate_limit_n is 1"),
    ],
)
def test_restarts_end(limits: dict[str, int], starts: int, said: str) -> None:
    """The last failure says how the player ended, the number of restarts and the key of the limit."""
    with scene(ends=EXIT_4, **limits) as made:
        text = made.failure()
    assert EXIT_4 in text
    assert said in text
    assert made.players[0].starts == starts


def test_players_that_end_with_the_actor_are_no_failures() -> None:
    """Players that end with the actor are neither failures nor restarted."""
    with scene(2, restarts=1) as made:
        made.is_over = True
        made.players[0].how = KILLED
        looks: list[None] = []
        made.players[1].how_it_ended = lambda: looks.append(None)
        eventually(lambda: len(looks) >= 2, "two looks after the end")
        assert made.players[0].starts == 1
        assert not made.failures
