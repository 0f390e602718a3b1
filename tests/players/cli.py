"""The command line of a scripted player: what a Unity build is started with, and what to play."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.players.cartpole import CartPole
from tests.players.player import NoTrainerError, Player, RefusedError


class EpisodeLog:
    """Writes a line of JSON for each finished episode.

    Args:
        path: of the file, None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self._begun = time.monotonic()
        self._file = path.open("a", encoding="utf-8", buffering=1) if path else None

    def __call__(self, behavior: str, decisions: int, total: float, length: int) -> None:
        """An episode ended."""
        if self._file:
            seconds = round(time.monotonic() - self._begun, 3)
            line = {"behavior": behavior, "decisions": decisions, "return": total, "length": length, "seconds": seconds}
            self._file.write(json.dumps(line) + "\n")


def arguments() -> argparse.ArgumentParser:
    """Returns the parser."""
    parser = argparse.ArgumentParser(prog="python -m tests.players", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mlagents-port", type=int, help="where the trainer's side listens on localhost")
    parser.add_argument("-nographics", action="store_true", help="as Unity's: ignored")
    parser.add_argument("-batchmode", action="store_true", help="as Unity's: ignored")
    parser.add_argument("-logFile", "-logfile", type=Path, help="where the player writes its log")
    parser.add_argument("--task", choices=("cartpole",), default="cartpole")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--decisions", type=int, help="leaves after so many agents' decisions")
    parser.add_argument("--episodes", type=Path, help="a file for a line of JSON for each finished episode")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for something that listens")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Plays, and returns the exit code: 0 when the trainer ended it, 3 when nothing listened, 4 when it was refused."""
    options = arguments().parse_args(argv)
    log = options.logFile.open("a", encoding="utf-8", buffering=1) if options.logFile else sys.stdout
    task = CartPole(options.agents, EpisodeLog(options.episodes))
    player = Player(options.mlagents_port, task)
    begun = time.monotonic()
    try:
        player.greet(options.wait)
        reason = player.run(lambda: options.decisions is None or task.decisions < options.decisions)
    except NoTrainerError as error:
        print(f"no trainer on port {options.mlagents_port}: {error}", file=log)
        return 3
    except RefusedError as error:
        print(f"refused: {error}", file=log)
        return 4
    seconds = time.monotonic() - begun
    print(
        f"{reason}; {player.exchanges} exchanges, {task.decisions} decisions, {player.resets} resets, "
        f"{seconds:.1f} s, of which {player.waited_seconds:.1f} s waiting",
        file=log,
        flush=True,
    )
    return 0
