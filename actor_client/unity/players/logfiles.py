"""Where players write their logs: beside the other files of the run, as ML-Agents has them."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from actor_client.connection.session import RunInfo
from actor_client.exits import ActorError, ExitCode

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,127}")


class LogPlace(NamedTuple):
    """Where players write their logs.

    Attributes:
        folder: It exists, and its path is absolute: players have working directories of their own. None leaves logs to
            Unity.
        prefix: Of the number in each name; empty for the first actor of a run, whose logs are named as ML-Agents' are.
    """

    folder: Path | None
    prefix: str


def log_place(log_dir: Path | None, run: RunInfo) -> LogPlace:
    """Returns where players write their logs; makes the folder.

    Args:
        log_dir: What the user asked for; None means `results/<run>/run_logs`, if that can be had.
        run: What the learner answered; its words are not trusted with paths.

    Raises:
        ActorError: The folder that was asked for cannot be made or written to (USAGE).
    """
    prefix = f"{run.actor_index}-" if run.actor_index else ""
    if log_dir is None and not _PLAIN.fullmatch(run.run_id):
        return LogPlace(None, prefix)
    folder = (log_dir or Path("results") / run.run_id / "run_logs").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".rollcast-{prefix}probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        if log_dir is not None:
            raise ActorError(
                ExitCode.USAGE, f"--log-dir {log_dir} cannot be written to ({error.strerror}): choose another folder"
            ) from None
        structlog.get_logger().warning(
            "player_logs_elsewhere", folder=str(folder), reason=error.strerror, next="choose a folder with --log-dir"
        )
        return LogPlace(None, prefix)
    return LogPlace(folder, prefix)
