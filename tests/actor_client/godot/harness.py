"""Scripted games that act for a scripted learner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from actor_client.godot.agent_roles import PolicyRoles
from actor_client.godot.app import GameLoop
from actor_client.godot.game import Game
from actor_client.godot.ports import Ports
from tests.actor_client.acting import Acting, started_link
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner
from tests.tools import godot_game

POLICY = "shared_policy"


class Editor:
    """Plays one game after the other, each in a thread, as people press Play.

    Args:
        port: The port to which games connect.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._threads: list[threading.Thread] = []

    def press_play(
        self, *words: str, game: Callable[[list[str]], godot_game.Game] = godot_game.Game
    ) -> godot_game.Game:
        """Starts a game and returns it."""
        made = game([f"--port={self._port}", *words])
        thread = threading.Thread(target=made.run, name="game")
        thread.start()
        self._threads.append(thread)
        return made

    def wait(self) -> None:
        """Waits for the end of all games."""
        for thread in self._threads:
            thread.join(DEAD_SECONDS)
            assert not thread.is_alive()


@contextmanager
def acting(learner: ScriptedLearner, behavior: str = POLICY) -> Iterator[tuple[Acting, Editor]]:
    """Waits for games of an editor during a block, and tells the last one to end; checks that the books balance."""
    ports = Ports()
    port = ports.open(None)
    editor = Editor(port.number)
    link = started_link(learner)
    run = link.open(DEAD_SECONDS)
    game = Game(0, lambda: port, None, PolicyRoles((), (), run), timeout_seconds=DEAD_SECONDS, max_failures=3)
    loop = GameLoop(link, run.assignment, [game], ports=ports)
    acts = Acting(learner, link, behavior)
    try:
        with acts.running(loop.run):
            yield acts, editor
        game.dismiss()
        editor.wait()
    finally:
        port.close()
        ports.close()
