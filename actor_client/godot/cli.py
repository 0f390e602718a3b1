"""The flags of `rollcast act godot`, and the spellings of gdrl."""

import argparse
from typing import Final

from rollcast.parsers import add_old_spelling

from actor_client.command_line import Command, add_common, add_opponent, add_recording

DESCRIPTION: Final = """\
Steps games with the Godot RL Agents plug-in, in place of gdrl: starts the games of a build, watches them, and starts those
that fail again. Without --env it waits for the editor on port 11008: press Play. A game connects only to this machine; the
learner may be on another one.

  rollcast act godot --env Game.x86_64 --num-envs 4 --speedup 8
  rollcast act godot                      (the editor)
"""
_OLD: Final = {
    "--env_path": "--env",
    "--n_parallel": "--num-envs",
    "--port": "--base-port",
    "--env_seed": "--env-seed",
    "--seed": "--env-seed",
    "--action_repeat": "--action-repeat",
    "--framerate": "--fixed-fps",
    "--show_window": "--viz",
}
"""Flags of gdrl and its example scripts, and those here."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act godot`; `actor_client.settings.godot` checks their values."""
    parser.add_argument("--env", metavar="BUILD", help="executable that Godot exported (default: wait for the editor)")
    parser.add_argument("--num-envs", metavar="N", help="games of the build to start (default: 1)")
    parser.add_argument(
        "--base-port",
        metavar="N",
        help="port of the first game; the others use the next ones (default: free ones; editor: 11008)",
    )
    parser.add_argument(
        "--speedup", metavar="X", help="speed of game time relative to real time (default: the Sync node's)"
    )
    parser.add_argument("--action-repeat", metavar="N", help="frames of physics per action (default: the Sync node's)")
    parser.add_argument("--fixed-fps", metavar="N", help="frames per second of game time, however fast they are made")
    parser.add_argument(
        "--viz", action="store_true", help="start games with windows, which cameras need (default: headless)"
    )
    parser.add_argument(
        "--env-seed",
        metavar="N",
        help="seed of the first game; the others use the next ones (default: from the run's seed)",
    )
    parser.add_argument(
        "--behavior",
        metavar="PATTERN=NAME",
        action="append",
        help="behavior of agents whose policy in Godot has such a name, or NAME for all; may be repeated (default: the only one "
        "of the run for a game with one policy, else the policy's name)",
    )
    parser.add_argument(
        "--team",
        metavar="PATTERN=NUMBER",
        action="append",
        help="team of agents whose policy has such a name; may be repeated (default: 0)",
    )
    parser.add_argument(
        "--timeout-wait", metavar="S", help="seconds a game may take to connect or to answer (default: 60)"
    )
    parser.add_argument(
        "--max-env-failures",
        metavar="N",
        help="end the actor after N failures of one game in a row; 100 of its steps cancel one failure (default: 3)",
    )
    add_opponent(parser)
    add_recording(parser)
    add_common(parser)
    parser.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="pass all remaining arguments to the build; must be last",
    )
    for old, new in _OLD.items():
        add_old_spelling(parser, old, new)


COMMAND: Final = Command(
    "step Godot games: start a build, or wait for the editor",
    DESCRIPTION,
    add_flags,
    "actor_client.godot.app:run_godot",
    "actor,gym",
)
