"""The flags of `rollcast act unity`."""

import argparse
from typing import Final

from rollcast.parsers import add_old_spelling

from actor_client.command_line import Command, add_common, add_opponent, add_recording

DESCRIPTION: Final = """\
Connects Unity players to a learner, which may be on another machine. A stock build or editor connects only to localhost,
where this command answers. It starts the players of a build, watches them, and restarts those that fail. Without --env it
waits for the editor on port 5004: press Play.

  rollcast act unity --env Build.x86_64 --num-envs 4 --learner gpu.lan:50051 --insecure
  rollcast act unity                      (the editor)
"""
_OF_RUN_FILE: Final = "(default: the value in the learner's run file)"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act unity`; `actor_client.settings.commands` checks their values."""
    _add_players(parser)
    _add_limits(parser)
    add_common(parser)
    parser.add_argument(
        "--quiet-seconds", metavar="S", help="do not warn about a missing learner for the first S seconds (default: 0)"
    )
    parser.add_argument(
        "--error-file", metavar="FILE", help="file for the error that ends this command, instead of standard error"
    )
    add_opponent(parser)
    add_recording(parser)
    parser.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help=f"pass all remaining arguments to the build; must be last {_OF_RUN_FILE}",
    )


def _add_players(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", metavar="BUILD", help="executable that Unity built (default: wait for the editor)")
    parser.add_argument("--num-envs", metavar="N", help="players of the build to start (default: 1)")
    parser.add_argument(
        "--base-port",
        metavar="N",
        help="port of the first player; the others use the next ones (default: 5005; editor: 5004)",
    )
    parser.add_argument(
        "--player-address",
        metavar="ADDR,...",
        help="addresses where players connect (default: 127.0.0.1,::1)",
    )
    add_old_spelling(parser, "--listen", "--player-address")
    parser.add_argument(
        "--allow-env-args",
        metavar="FLAG,...",
        help="flags for the build that the learner's run file may give, as --allow-env-args=--level,--seed (default: none)",
    )
    parser.add_argument("--no-graphics", action="store_true", help=f"start players without graphics {_OF_RUN_FILE}")
    parser.add_argument(
        "--no-graphics-monitor",
        action="store_true",
        help=f"start all players but the first without graphics {_OF_RUN_FILE}",
    )
    parser.add_argument("--log-dir", metavar="DIR", help="folder for Player-<n>.log (default: results/<run>/run_logs)")
    parser.add_argument(
        "--side-channel",
        metavar="MODULE:CALLABLE",
        action="append",
        help="callable that creates your own side channel; may be repeated",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout-wait", metavar="S", help=f"seconds a player may take to send a message {_OF_RUN_FILE}"
    )
    parser.add_argument(
        "--max-lifetime-restarts", metavar="N", help=f"limit of restarts of one player; -1 for no limit {_OF_RUN_FILE}"
    )
    parser.add_argument(
        "--restarts-rate-limit-n",
        metavar="N",
        help=f"limit of restarts of one player within a period; -1 for no limit {_OF_RUN_FILE}",
    )
    parser.add_argument("--restarts-rate-limit-period-s", metavar="S", help=f"the period in seconds {_OF_RUN_FILE}")
    parser.add_argument(
        "--max-player-message-bytes", metavar="N", help="largest message of a player in bytes (default: 268435456)"
    )


COMMAND: Final = Command(
    "serve Unity players: start a build, or wait for the editor",
    DESCRIPTION,
    add_flags,
    "actor_client.unity.start:run",
    "actor,unity",
)
