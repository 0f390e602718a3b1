"""A scripted player in the place of a Unity build."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TextIO

from tests.tools.players.faults import FAULTS, Faulty, Reporting
from tests.tools.players.player import NoTrainerError, Player, RefusedError
from tests.tools.players.side_channel import told
from tests.tools.players.task import Task, WrongReplyError
from tests.tools.players.tasks import TASKS

NO_TRAINER, REFUSED, WRONG_REPLY = 3, 4, 5


class LineLog:
    """Writes lines of JSON, each with the seconds since the log was opened; written at once, for others read along.

    Args:
        path: Of the file, None for none; lines are added to what is there.
    """

    def __init__(self, path: Path | None) -> None:
        self._begun = time.monotonic()
        self._file = path.open("a", encoding="utf-8", buffering=1) if path else None

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()

    def episode(self, behavior: str, decisions: int, total: float, length: int) -> None:
        """Writes an ended episode."""
        self._write({"behavior": behavior, "decisions": decisions, "return": total, "length": length})

    def notice(self, event: str, **content: Any) -> None:
        """Writes another event of the player."""
        if event == "side_channel":
            content = {"told": told(content["data"])}
        self._write({"event": event, **content})

    def _write(self, line: dict[str, Any]) -> None:
        if self._file:
            self._file.write(json.dumps(line | {"seconds": round(time.monotonic() - self._begun, 3)}) + "\n")


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser with the arguments of a Unity build and the player's own."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.players", description=__doc__, allow_abbrev=False)
    unity = parser.add_argument_group("as Unity's")
    unity.add_argument("--mlagents-port", type=int, required=True, help="where the trainer's side listens on localhost")
    unity.add_argument("-nographics", action="store_true", help="ignored")
    unity.add_argument("-batchmode", action="store_true", help="ignored")
    unity.add_argument("-logFile", "-logfile", type=Path, metavar="FILE", help="the player's log")
    parser.add_argument("--task", choices=sorted(TASKS), default="cartpole")
    parser.add_argument("--agents", type=int, default=8, help="of each behavior")
    parser.add_argument("--decisions", type=int, metavar="N", help="leaves after so many decisions of agents")
    parser.add_argument("--episodes", type=Path, metavar="FILE", help="gets a line of JSON for each finished episode")
    parser.add_argument("--events", type=Path, metavar="FILE", help="gets a line of JSON for all that it is told")
    parser.add_argument("--statistics", action="store_true", help="sends statistics with each message")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="what goes wrong; may be repeated")
    parser.add_argument("--fault-at", type=int, default=0, metavar="N", help="after so many decisions")
    parser.add_argument("--fault-once", type=Path, metavar="FILE", help="no fault where this file is; it is made")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="for something to listen; Unity does not")
    return parser


def make_task(options: argparse.Namespace, episodes: LineLog) -> Task:
    """Returns the task with its faults and statistics."""
    task = TASKS[options.task](options.agents, episodes.episode)
    if options.statistics:
        task = Reporting(task)
    once: Path | None = options.fault_once
    if options.fault and (once is None or _is_first(once)):
        task = Faulty(task, options.fault, options.fault_at)
    return task


def _is_first(file: Path) -> bool:
    """Makes the file; False if it is there. One step: two players may start at the same moment."""
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Plays.

    Returns:
        0 when the trainer's side or the player ended it, 3 when nothing listened, 4 when the player was refused, 5 when
        an answer was one that Unity could not use.
    """
    options = make_parser().parse_args(argv)
    with ExitStack() as opened:
        log: TextIO = sys.stdout
        if options.logFile:
            log = opened.enter_context(options.logFile.open("a", encoding="utf-8", buffering=1))
        episodes, events = (opened.enter_context(closing(LineLog(path))) for path in (options.episodes, options.events))
        task = make_task(options, episodes)
        player = opened.enter_context(closing(Player(options.mlagents_port, task, events.notice)))
        return _play(player, task, options, log)


def _play(player: Player, task: Task, options: argparse.Namespace, log: TextIO) -> int:
    try:
        player.greet(options.wait)
        begun = time.monotonic()
        reason = player.run(lambda: options.decisions is None or task.decisions < options.decisions)
    except NoTrainerError as error:
        print(f"no trainer on port {options.mlagents_port}: {error}", file=log, flush=True)
        return NO_TRAINER
    except RefusedError as error:
        print(f"refused: {error}", file=log, flush=True)
        return REFUSED
    except WrongReplyError as error:
        print(f"wrong reply: {error}", file=log, flush=True)
        return WRONG_REPLY
    seconds = time.monotonic() - begun
    counts = f"{player.exchanges} exchanges, {task.decisions} decisions, {player.resets} resets"
    print(f"{reason}; {counts}, {seconds:.1f} s, {player.waited_seconds:.1f} s of them waiting", file=log, flush=True)
    return 0
