"""Parses the command line of ``train``: a learner and its actors, for an environment of Gymnasium or a game of Godot, in one command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from rollcast.parsers import add_wrappers

from learner.cli.run_flags import count_of
from learner.cli.serve_flags import add_run_settings, add_stopped_code
from learner.shared.exits import ExitCode

_DESCRIPTION: Final = """\
Trains on an environment of Gymnasium, or a game of Godot: starts a learner and, as soon as it listens, the actors, and ends both together.

  rollcast train --env CartPole-v1
  rollcast train --env mine:Maze --num-envs 16 --actors 4 --target-return 20
  rollcast train run.yaml --env ALE/Pong-v5 --frame-stack 4
  rollcast train --env Game.x86_64 --godot --actor-args --speedup 8

Without a run file, the settings are those of the first example for the environment and trainer (init --list), otherwise of the
example `discrete` or `continuous`; the first line says which, and `init` writes them to a file. With --godot they are the defaults
of the trainer.
"""
_EPILOG: Final = """\
Lines of the actors have their name. Ctrl-C ends both sides normally and saves. An actor that fails on its own ends with a code of
rollcast act gym --help; the last one ends the command, with that code and its error.

"""
DEFAULT_ENVS: Final = 4


def add_train(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """Adds the flags of ``train``.

    Args:
        parser: Its parser.
        run: Runs the parsed command.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = (
        _EPILOG + "exit codes of the learner:\n" + "\n".join(f"  {code:3d}  {code.help}" for code in ExitCode)
    )
    add_environment(parser, is_required=True)
    parser.add_argument("--godot", action="store_true", help="the environment is a build of rollcast act godot")
    add_run_settings(parser)
    add_stopped_code(parser)
    parser.set_defaults(run=run)


def add_environment(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    """Adds the environment, the actors, and the trainer of a run without a run file.

    Args:
        parser: Parser of a command.
        is_required: Whether the command needs an environment.
    """
    collects = parser.add_argument_group("actors")
    collects.add_argument(
        "--env", metavar="ID", required=is_required, help="a Gymnasium id, package:id, or module:callable"
    )
    collects.add_argument("--actors", metavar="N", type=count_of, default=1, help="actors to start (default: 1)")
    collects.add_argument(
        "--num-envs", metavar="N", default=str(DEFAULT_ENVS),
        help=f"environments that each actor steps together (default: {DEFAULT_ENVS})",
    )  # fmt: skip
    collects.add_argument("--stepped-by-caller", choices=("discrete", "continuous"), help=argparse.SUPPRESS)
    collects.add_argument("--env-kwargs", metavar="JSON", help="arguments of the environment, as a JSON object")
    collects.add_argument("--vector", action="store_true", help="use the environment's own vector entry point")
    add_wrappers(collects)
    collects.add_argument(
        "--step-timeout", metavar="S", help="end an actor if a call of an environment takes longer than S seconds"
    )
    collects.add_argument("--max-env-failures", metavar="N", help="end an actor after N failures in a row (default: 3)")
    collects.add_argument("--behavior", metavar="NAME", help="behavior to train (default: the only one of the run)")
    collects.add_argument(
        "--actor-certs",
        metavar="DIR",
        help="folder of rollcast join for these actors (default: the learner lets them in)",
    )
    collects.add_argument(
        "--actor-args", nargs=argparse.REMAINDER, metavar="...", default=[],
        help="more flags for the actors; takes all that follow, so it must be last",
    )  # fmt: skip
    parser.add_argument(
        "--trainer",
        metavar="TYPE",
        help="without a run file: the trainer, as ppo, sac or mine:Trainer (default: that of the example, or ppo)",
    )
