"""One player's process: started, asked how it is, ended with everything it started."""

import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from actor_client.exits import ActorError, ExitCode
from actor_client.platform import describe_exit, end_process, start_process
from actor_client.unity.players.launch import Launch

_KEPT_LINES: Final = 20
_LINE_BYTES: Final = 4096
_SHOWN_CHARS: Final = 200
_LAST_WORDS_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.05


class PlayerProcess:
    """A player that can be started again and again, one process at a time.

    Args:
        worker: Which player.
        port: Where it finds its trainer.
        launch: How it is started.
        shows_output: Its output goes to this terminal; else its last lines are kept for whoever asks why it ended.

    Attributes:
        worker: The same.
        port: The same.
        log: Where it writes its log; None if that is left to Unity.
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
        """The number of the process; None before the first start."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Starts it; the log of the one before is kept beside the new one as `-prev`.

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
        """Returns exit code or signal in words; None while it runs."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else describe_exit(code)

    def last_words(self) -> str:
        """Returns the last line of its output, as far as it can be shown; empty if it wrote none."""
        if self._reading is not None:
            self._reading.join(_LAST_WORDS_SECONDS)  # what a process wrote last is read after its end
        for line in reversed(list(self._lines)):
            text = line.decode("utf-8", "replace").strip()
            if text:
                return "".join(char if char.isprintable() else "?" for char in text)[:_SHOWN_CHARS]
        return ""

    def ask_to_end(self) -> None:
        """Asks it, and all it started, to end."""
        if self._process is not None:
            end_process(self._process, at_once=False)

    def kill(self) -> None:
        """Ends it and all it started, whether or not it has ended before; takes no lock."""
        if self._process is not None:
            end_process(self._process, at_once=True)

    def end_at_once(self) -> None:
        """Does the same, and waits until it is gone."""
        self.kill()
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):  # a process inside a broken driver is not ours to wait for
            self._process.wait(1.0)


def end_all(
    players: Sequence[PlayerProcess],
    leave_seconds: float,
    term_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Ends all players, which have been told so over their connections.

    Args:
        players: All of them.
        leave_seconds: How long they may take to leave by themselves.
        term_seconds: How long they may take after a request of the system.
        clock: Monotonic seconds.
    """
    if not _all_gone(players, leave_seconds, clock):
        for player in players:
            if player.how_it_ended() is None:
                player.ask_to_end()
        _all_gone(players, term_seconds, clock)
    for player in players:
        player.end_at_once()


def _all_gone(players: Sequence[PlayerProcess], seconds: float, clock: Callable[[], float]) -> bool:
    """Waits until all have ended, or the time is over."""
    deadline = clock() + seconds
    while any(player.pid is not None and player.how_it_ended() is None for player in players):
        if clock() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _read(output: IO[bytes], lines: deque[bytes]) -> None:
    """The thread that takes a player's output, which would stop the player once the pipe is full."""
    with suppress(OSError, ValueError), output:
        while line := output.readline(_LINE_BYTES):
            lines.append(line)


def _keep(log: Path) -> None:
    """Puts the log of the process before aside: it says why that one failed, and the next one overwrites it."""
    with suppress(OSError):
        log.replace(log.with_name(f"{log.stem}-prev{log.suffix}"))
