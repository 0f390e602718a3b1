"""Starts one player's process, checks its state, and ends it with everything it started."""

import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Protocol

from rollcast.text import printable

from actor_client.exits import ActorError, ExitCode
from actor_client.platform import describe_exit, end_process, start_process

_KEPT_LINES: Final = 20
_LINE_BYTES: Final = 4096
_SHOWN_CHARS: Final = 200
_LAST_WORDS_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.05


class Launch(Protocol):
    """The start options of the players of one build."""

    def log_path(self, worker: int) -> Path | None:
        """Returns the path of a player's log; None if the engine chooses it, or writes none."""

    def command(self, worker: int, port: int) -> list[str]:
        """Returns the command line of one player.

        Args:
            worker: The player's number.
            port: The port of its trainer on localhost.
        """


class PlayerProcess:
    """A player that can be restarted; it has one process at a time.

    Args:
        worker: The player's number.
        port: The port of its trainer.
        launch: Its start options.
        shows_output: Its output goes to this terminal; otherwise its last lines are kept to explain why it ended.

    Attributes:
        worker: The player's number.
        port: The port of its trainer.
        log: The path of its log; None if it has none that is known.
    """

    def __init__(self, worker: int, port: int, launch: Launch, *, shows_output: bool = False) -> None:
        self.worker = worker
        self.port = port
        self.log = launch.log_path(worker)
        self._command = launch.command(worker, port)
        self._shows_output = shows_output
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._reading: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None before the first start."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Starts the process; the previous log is kept next to the new one as `-prev`.

        Raises:
            ActorError: It cannot be started (UNKNOWN_ENVIRONMENT).
        """
        if self.log is not None:
            _keep(self.log)
        try:
            self._process = start_process(self._command, output=None if self._shows_output else subprocess.PIPE)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ActorError(
                ExitCode.UNKNOWN_ENVIRONMENT,
                f"player {self.worker} cannot be started: {self._command[0]}: {why.lower()}; is it a build for this "
                "system and processor?",
            ) from None
        self._lines = deque(maxlen=_KEPT_LINES)
        if self._process.stdout is not None:
            self._reading = threading.Thread(
                target=_read,
                args=(self._process.stdout, self._lines),
                name=f"rollcast-output-{self.worker}",
                daemon=True,
            )
            self._reading.start()

    def how_it_ended(self) -> str | None:
        """Returns the exit code or signal in words; None while the process runs."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else describe_exit(code)

    def last_words(self) -> str:
        """Returns the last line of its output in printable form; empty if it wrote none."""
        if self._reading is not None:
            self._reading.join(_LAST_WORDS_SECONDS)  # a process's last output is read after its end
        for line in reversed(list(self._lines)):
            text = line.decode("utf-8", "replace").strip()
            if text:
                return printable(text, _SHOWN_CHARS)
        return ""

    def ask_to_end(self) -> None:
        """Asks the process, and all it started, to end."""
        if self._process is not None:
            end_process(self._process, at_once=False)

    def kill(self) -> None:
        """Kills the process and all it started, even if it has ended before; takes no lock."""
        if self._process is not None:
            end_process(self._process, at_once=True)

    def end_at_once(self) -> None:
        """Kills the process like `kill`, and waits until it has gone."""
        self.kill()
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):  # a process stuck in a driver is not waited for
            self._process.wait(1.0)


def end_all(players: Sequence[PlayerProcess], leave_seconds: float, term_seconds: float) -> None:
    """Ends all players, which have been told to quit over their connections.

    Args:
        players: All players.
        leave_seconds: Seconds they may take to quit by themselves.
        term_seconds: Seconds they may take after SIGTERM.
    """
    if not _all_gone(players, leave_seconds):
        for player in players:
            if player.how_it_ended() is None:
                player.ask_to_end()
        _all_gone(players, term_seconds)
    for player in players:
        player.end_at_once()


def _all_gone(players: Sequence[PlayerProcess], seconds: float) -> bool:
    """Waits until all players have ended, or the time is over."""
    deadline = time.monotonic() + seconds
    while any(player.pid is not None and player.how_it_ended() is None for player in players):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _read(output: IO[bytes], lines: deque[bytes]) -> None:
    """Reads a player's output in a thread; a full pipe would block the player."""
    with suppress(OSError, ValueError), output:
        while line := output.readline(_LINE_BYTES):
            lines.append(line)


def _keep(log: Path) -> None:
    """Renames the previous process's log, which may explain its failure and would be overwritten."""
    with suppress(OSError):
        log.replace(log.with_name(f"{log.stem}-prev{log.suffix}"))
