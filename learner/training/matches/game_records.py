"""Shows the newest game of evaluations and tournaments, and keeps the newest ones as files that programs for games read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from rollcast.chunks import GameRecord
from rollcast.game_records import SCORES, GameText
from rollcast.text import printable

from learner.link.matches import Match
from learner.shared.files import WriteFailed, write_file
from learner.shared.observe.behavior_state import GameView
from learner.shared.observe.meters import RunMeters
from learner.shared.runfolder.names import safe_name

log = structlog.get_logger(__name__)

GAMES: Final = "games"
"""Folder in the folder of a behavior."""
KEPT_FILES: Final = 100
"""Files of a behavior; the oldest are deleted. With the longest games they take 10 MB."""
_NAME: Final = re.compile(r"game-([0-9]{6,12})\.(?:kifu|pgn|txt)")


class GameRecords:
    """The records of games that actors send, one for each finished match; used in the trainers' thread.

    A record is a claim of the actor: it is shown and written, and no rating depends on it.

    Args:
        folder: Folder of the run or tournament, for ``<folder>/<Behavior>/games``; None writes no files.
        meters: Show the newest game.
        clock: Returns seconds since 1970.
        on_written: Called with behavior and file of each game.
    """

    def __init__(
        self,
        folder: Path | None,
        meters: RunMeters,
        clock: Callable[[], float] = time.time,
        on_written: Callable[[str, Path], object] = lambda *_: None,
    ) -> None:
        self._on_written = on_written
        self._folder = folder
        self._meters = meters
        self._clock = clock
        self._files: dict[str, list[Path]] = {}  # by behavior, the oldest first

    def add(self, behavior: str, match: Match, record: GameRecord | None, names: tuple[str, str]) -> None:
        """Shows and writes a game of a finished match. What cannot be written is logged, and the run continues.

        Args:
            behavior: Name of the behavior.
            match: The match.
            record: The game; None if the actor sent none.
            names: Players of the match, in the order of its seats.
        """
        if record is None:
            return
        teams = [seat.team for seat in match.seats]
        first = teams.index(record.first_team) if record.first_team in teams else 0
        named = printable(names[first]), printable(names[1 - first])
        date = time.strftime("%Y.%m.%d", time.localtime(self._clock()))
        text = GameText(record.game, record.moves, named, date, SCORES[record.result])
        try:
            content = text.render()
            if record.first_team not in teams:
                raise ValueError(f"team {record.first_team}, which moved first, has no seat in the match")
        except ValueError as error:
            log.warning("game_record_refused", behavior=behavior, match=match.number, reason=str(error))
            return
        self._meters.behavior(behavior).show_game(GameView(record.game, *named, text.score, "\n".join(record.moves)))
        if self._folder is not None:
            self._write(behavior, self._folder / safe_name(behavior) / GAMES, text.suffix, content)

    def _write(self, behavior: str, folder: Path, suffix: str, content: str) -> None:
        try:
            files = self._files.get(behavior)
            if files is None:
                folder.mkdir(parents=True, exist_ok=True)
                found = {path: match for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
                files = self._files[behavior] = sorted(found, key=lambda path: int(found[path][1]))
            number = int(files[-1].stem.removeprefix("game-")) + 1 if files else 1
            path = folder / f"game-{number:06d}{suffix}"
            write_file(path, content.encode())
            files.append(path)
            while len(files) > KEPT_FILES:
                files.pop(0).unlink(missing_ok=True)
        except (OSError, WriteFailed) as error:
            log.warning("game_record_not_written", behavior=behavior, folder=str(folder), error=str(error))
            return
        log.debug("game_recorded", behavior=behavior, file=str(path))
        self._on_written(behavior, path)
