"""Tests real players that fail in every way, and their restarts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actor_client.exits import ActorError, ExitCode
from actor_client.unity import replies
from actor_client.unity.conversation import Conversation, Phase
from actor_client.unity.mailbox import Kind, Mailbox
from actor_client.unity.players.launch import Launch
from actor_client.unity.players.process import PlayerProcess, end_all
from actor_client.unity.players.rules import PlayerRules
from actor_client.unity.players.supervisor import PlayerSupervisor, ended, fell_silent, never_connected
from actor_client.unity.server import PlayerServer
from tests.actor_client.unity.players.programs import LEAVES, SECONDS, eventually, greeter, script

LONG_AGO = -2 * SECONDS
STAYS = "import time\ntime.sleep(600)"
LOG = Path("/logs/Player-1.log")


class Desk:
    """Takes the gateway's place: greets players, and notes who was lost.

    Attributes:
        lost: Workers, in their order.
    """

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.lost: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def player_lost(self, worker: int, _why: str) -> None:
        """Reports a lost player as the gateway does."""
        self.lost.append(worker)

    def close(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.01):
            for post in self.mailbox.take():
                if post.kind is Kind.HELLO:
                    post.answer(replies.greeting(post.content, 1, 1))
                elif post.kind is Kind.READY:
                    post.answer(replies.reset(b""))


class Scene:
    """Players of one build under a supervisor.

    Attributes:
        conversations: With the players.
        processes: The players.
        desk: Who greets them.
        failures: Errors that would have ended the actor.
        supervisor: Who watches.
        is_over: Whether the actor ends.
    """

    def __init__(self, build: Path, number: int, rules: PlayerRules) -> None:
        self.desk = Desk()
        self.failures: list[ActorError] = []
        self.is_over = False
        self.conversations = [Conversation(worker, self.desk.mailbox) for worker in range(number)]
        self._servers = [
            PlayerServer(worker, ("127.0.0.1", "::1"), 0, conversation, 1 << 20)
            for worker, conversation in enumerate(self.conversations)
        ]
        for server in self._servers:
            server.start()
        self.processes = [PlayerProcess(server.worker, server.port, Launch(build)) for server in self._servers]
        self.supervisor = PlayerSupervisor(
            self.processes,
            self.conversations,
            rules,
            on_lost=self.desk.player_lost,
            on_failure=self.failures.append,
            is_over=lambda: self.is_over,
        )

    def close(self) -> None:
        """Ends all."""
        self.supervisor.rest()
        for conversation in self.conversations:
            conversation.close()
        end_all(self.processes, 0.0, 0.0)
        for server in self._servers:
            server.stop()
        self.desk.close()

    def failure(self) -> str:
        """Waits for what ends the actor."""
        eventually(lambda: bool(self.failures), "a failure")
        (error,) = self.failures
        assert error.exit_code is ExitCode.ENVIRONMENT_FAILED
        assert "\n" not in error.message
        return error.message


@contextmanager
def scene(
    build: Path, number: int = 1, *, timeout: float = SECONDS, restarts: int = 0, rate: int = -1
) -> Iterator[Scene]:
    """Starts players and watches them."""
    made = Scene(
        build, number, PlayerRules(timeout, restarts, rate, 60.0, (), no_graphics=False, no_graphics_monitor=False)
    )
    try:
        made.supervisor.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("exit 3", "player 0 never connected: it ended with exit code 3. It is not restarted: "),
        (
            "echo 'no libfoo.so' >&2; kill -SEGV $$",
            "it was ended by SIGSEGV (segmentation fault); its last output: no libfoo",
        ),
        ("exit 0", "never connected: it ended with exit code 0"),
    ],
)
def test_a_player_that_ends_before_it_calls(tmp_path: Path, body: str, text: str) -> None:
    """A player that ends before it calls is reported with exit code or signal and its last output."""
    with scene(script(tmp_path, body)) as made:
        assert text in made.failure()
        assert made.desk.lost == [0]


def test_a_player_that_never_calls(tmp_path: Path) -> None:
    """A player that never calls is ended; the message names its port and the usual causes."""
    with scene(script(tmp_path, "sleep 600"), timeout=0.3) as made:
        text = made.failure()
        assert "has not connected to port" in text
        assert "built without ML-Agents" in text
        assert made.processes[0].how_it_ended() == "was ended by SIGKILL (killed)"


def test_a_player_that_falls_silent(tmp_path: Path) -> None:
    """A player that stops answering is ended; the message names the two settings to check."""
    with scene(greeter(tmp_path, STAYS)) as made:
        eventually(lambda: made.conversations[0].phase is Phase.GREETED, "a greeting")
        eventually(lambda: made.conversations[0].waiting_since is not None, "an answer")
        made.conversations[0].waiting_since = LONG_AGO
        made.supervisor._watched[0].excuse(LONG_AGO)
        text = made.failure()
        assert "is connected, but has sent nothing for 60 s" in text
        assert "DecisionRequester" in text
        assert "Behavior Type" in text


def test_no_player_owes_anything_while_it_is_owed_an_answer(tmp_path: Path) -> None:
    """A player that waits for the learner never times out."""
    with scene(greeter(tmp_path, STAYS)) as made:
        made.desk.close()
        eventually(lambda: made.conversations[0].phase is Phase.GREETED, "a greeting")
        made.supervisor._watched[0].excuse(LONG_AGO)
        assert made.conversations[0].waiting_since is None
        assert not threading.Event().wait(0.3)
        assert not made.failures


def test_a_player_that_quits_by_itself(tmp_path: Path) -> None:
    """In training, a player that quits by itself is started again."""
    with scene(greeter(tmp_path, LEAVES + "sys.exit(5)")) as made:
        assert "player 0 quit by itself: it closed the connection and ended with exit code 5" in made.failure()


def test_a_version_that_will_never_fit_is_said_at_once(tmp_path: Path) -> None:
    """A player with an incompatible version is not started again."""
    with scene(greeter(tmp_path, STAYS, version="9.0.0"), restarts=-1) as made:
        text = made.failure()
        assert "was refused: player 0 uses version '9.0.0'" in text
        assert "a restart would not help" in text


def test_only_the_player_that_failed_is_started_again(tmp_path: Path) -> None:
    """Only the failed player is restarted, with a new conversation."""
    with scene(greeter(tmp_path, STAYS), 2, restarts=1) as made:
        eventually(lambda: all(each.phase is Phase.GREETED for each in made.conversations), "two greetings")
        first, second = (process.pid for process in made.processes)
        assert second is not None
        os.kill(second, signal.SIGKILL)
        eventually(lambda: made.processes[1].pid != second, "a new process")
        eventually(lambda: made.conversations[1].phase is Phase.GREETED, "its greeting")
        assert made.processes[0].pid == first
        assert made.processes[0].how_it_ended() is None
        assert made.conversations[0].phase is Phase.GREETED
        assert made.desk.lost == [1]
        assert made.supervisor.restarts == 1
        assert not made.failures


def test_each_player_has_its_own_restarts_and_they_end(tmp_path: Path) -> None:
    """The last failure says how it ended, the number of restarts and the key of the limit."""
    count = tmp_path / "count"
    with scene(script(tmp_path, f"echo x >> {count}; exit 4"), restarts=2) as made:
        text = made.failure()
    assert "ended with exit code 4" in text
    assert "it was restarted 2 times, and max_lifetime_restarts is 2" in text
    assert count.read_text() == "x\n" * 3


def test_restarts_within_a_period_are_limited(tmp_path: Path) -> None:
    """A player that always fails at the start exceeds the limit of restarts within a period."""
    with scene(script(tmp_path, "exit 4"), restarts=-1, rate=1) as made:
        assert "restarted 1 times within 60 s, and restarts_rate_limit_n is 1" in made.failure()


def test_players_that_end_with_the_actor_are_no_failures(tmp_path: Path) -> None:
    """Players that end with the actor are neither failures nor restarted."""
    with scene(greeter(tmp_path, STAYS), restarts=-1) as made:
        eventually(lambda: made.conversations[0].phase is Phase.GREETED, "a greeting")
        made.is_over = True
        pid = made.processes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: made.processes[0].how_it_ended() is not None, "its end")
        assert not threading.Event().wait(0.3)
        assert made.processes[0].pid == pid
        assert not made.failures


def test_a_player_that_never_called() -> None:
    """The message has the port and the usual causes: no ML-Agents, graphics, time to load."""
    text = never_connected(60.0, 5006, LOG)
    for words in (
        "port 5006 within 60 s",
        "without ML-Agents",
        "--mlagents-port",
        "graphics",
        "--timeout-wait",
        str(LOG),
    ):
        assert words in text
    assert "\n" not in text


def test_a_player_that_fell_silent() -> None:
    """The message names the two settings by their names in the inspector."""
    text = fell_silent(60.0, LOG)
    for words in ("for 60 s", "DecisionRequester", "Behavior Type", "Default", "graphics", "--timeout-wait", str(LOG)):
        assert words in text
    assert "\n" not in text


def test_a_player_that_ended() -> None:
    """The message tells whether the player had called, and has its last output."""
    how = "ended with exit code 3"
    assert ended(how, "", None, has_called=True, said_so=False) == how
    assert ended(how, "no libfoo.so", LOG, has_called=False, said_so=False) == (
        f"never connected: it {how}; its last output: no libfoo.so. See {LOG}"
    )
    assert ended(how, "", None, has_called=True, said_so=True).startswith("quit by itself: ")
