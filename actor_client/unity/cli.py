"""The flags of `rollcast-actor unity`."""

import argparse
import os
from typing import Final

DESCRIPTION: Final = """\
Serves Unity players for a learner that may be on another machine. A stock build or editor calls localhost only: this
command answers there, starts the players of a build, watches them, and starts a failed one again. Without --env it waits
for the editor on port 5004: press Play.

  rollcast-actor unity --env Build.x86_64 --num-envs 4 --learner gpu.lan:50051 --insecure
  rollcast-actor unity                      (the editor)
"""
_OF_RUN_FILE: Final = "(default: as the run file of the learner says)"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds what `rollcast-actor unity` can be told; `actor_client.settings.commands` checks it."""
    _add_players(parser)
    _add_limits(parser)
    add_common(parser)
    parser.add_argument(
        "--quiet-seconds", metavar="S", help="no warnings so long that the learner is not there yet (default: 0)"
    )
    parser.add_argument("--error-file", metavar="FILE", help="file that gets the error that ended it, as text")
    add_recording(parser)
    parser.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help=f"all that follows goes to the build: must be last {_OF_RUN_FILE}",
    )
    parser.set_defaults(run=_unity)


def _add_players(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", metavar="BUILD", help="executable that Unity built (default: wait for the editor)")
    parser.add_argument("--num-envs", metavar="N", help="players of the build to start (default: 1)")
    parser.add_argument(
        "--base-port", metavar="P", help="port of the first player, the others follow (default: 5005; editor: 5004)"
    )
    parser.add_argument("--listen", metavar="ADDR,...", help="where players call (default: 127.0.0.1,::1)")
    parser.add_argument("--no-graphics", action="store_true", help=f"start players without graphics {_OF_RUN_FILE}")
    parser.add_argument(
        "--no-graphics-monitor", action="store_true", help=f"the same, but for the first player {_OF_RUN_FILE}"
    )
    parser.add_argument("--log-dir", metavar="DIR", help="folder for Player-<n>.log (default: results/<run>/run_logs)")
    parser.add_argument(
        "--side-channel",
        metavar="MODULE:CALLABLE",
        action="append",
        help="makes a side channel of your own; may be repeated",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout-wait", metavar="S", help=f"seconds a player may take for a message {_OF_RUN_FILE}")
    parser.add_argument(
        "--max-lifetime-restarts", metavar="N", help=f"restarts of one player, -1 for any number {_OF_RUN_FILE}"
    )
    parser.add_argument(
        "--restarts-rate-limit-n", metavar="N", help=f"the same within a period, -1 for any number {_OF_RUN_FILE}"
    )
    parser.add_argument("--restarts-rate-limit-period-s", metavar="S", help=f"that period {_OF_RUN_FILE}")
    parser.add_argument(
        "--max-player-message-bytes", metavar="N", help="largest message of a player (default: 268435456)"
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Adds what every command that acts can be told of demonstrations."""
    parser.add_argument(
        "--record", metavar="FILE.demo", help="record what the actor does as demonstrations, in a new file"
    )
    parser.add_argument(
        "--record-episodes", metavar="N", help="stop once N episodes are recorded (default: record until stopped)"
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds what every actor can be told of its learner, its end and its log."""
    parser.add_argument("--learner", metavar="HOST:PORT", help="where the learner is (default: 127.0.0.1:50051)")
    parser.add_argument("--insecure", action="store_true", help="allow plain text to and from other machines")
    parser.add_argument("--name", metavar="NAME", help="name of this actor in the learner's status (default: made up)")
    parser.add_argument("--connect-timeout", metavar="S", help="give up if the learner is not found within S seconds")
    parser.add_argument("--max-seconds", metavar="S", help="stop after S seconds")
    parser.add_argument(
        "--metrics-address",
        metavar="HOST:PORT",
        help="serve metrics there, or off (default: 127.0.0.1:9465, or a free port if it is taken)",
    )
    parser.add_argument("--heartbeat-file", metavar="FILE", help="file to touch while the actor steps, or waits")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console or json")
    parser.add_argument(
        "--log-level", metavar="LEVEL", help="debug (Unity: with the players' output), info, warning or error"
    )


def _unity(parsed: argparse.Namespace) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the log has its own lines; set before gRPC is loaded
    from actor_client.unity.start import run

    return run({name: value for name, value in vars(parsed).items() if name not in {"command", "run", "version"}})
