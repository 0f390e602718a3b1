"""Says what a Unity build is, and builds the command line of a player as ML-Agents does."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from actor_client.builds.executables import Engine

UNITY: Final = Engine(
    "Unity",
    "Unity built",
    "File, Build",
    "ProjectSettings",
    "goes first, without a flag: rollcast unity {env} --env BUILD, with the executable that Unity built (rollcast act unity "
    "takes no run file: its learner has one)",
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Start options of the players of one build.

    Attributes:
        executable: The path of the build's executable.
        env_args: The user's arguments, last on the command line.
        no_graphics: Start without graphics.
        no_graphics_monitor: Start all but worker 0 without graphics.
        log_dir: The folder of the players' logs; None lets Unity choose it.
        log_prefix: Separates the logs of several actors in one folder.
    """

    executable: Path
    env_args: tuple[str, ...] = ()
    no_graphics: bool = False
    no_graphics_monitor: bool = False
    log_dir: Path | None = None
    log_prefix: str = ""

    def log_path(self, worker: int) -> Path | None:
        """Returns the path of a player's log; None if Unity or the user's own arguments choose it."""
        is_given = any(argument.lower() == "-logfile" for argument in self.env_args)
        return None if self.log_dir is None or is_given else self.log_dir / f"Player-{self.log_prefix}{worker}.log"

    def command(self, worker: int, port: int) -> list[str]:
        """Returns the command line of one player.

        Args:
            worker: The player's number.
            port: The port of its trainer on localhost.
        """
        words = [str(self.executable)]
        if self.no_graphics or (self.no_graphics_monitor and worker != 0):
            words += ["-nographics", "-batchmode"]
        words += ["--mlagents-port", str(port)]
        log_path = self.log_path(worker)
        if log_path is not None:
            words += ["-logFile", str(log_path)]
        return [*words, *self.env_args]


def flags_of(words: Sequence[str]) -> list[str]:
    """Returns the flags among a build's arguments: words that begin with a dash, and the first one, up to "="."""
    return [word.partition("=")[0] for place, word in enumerate(words) if not place or word.startswith("-")]
