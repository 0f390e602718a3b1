"""The flags of `rollcast act boards` and `rollcast play`."""

import argparse
from typing import Final

from rollcast.console import COMMANDS
from rollcast.parsers import add_old_spelling

from actor_client.command_line import Command, add_common, add_opponent, add_recording

DESCRIPTION: Final = """\
Plays board games of two players from OpenSpiel, many games at once. Both players have the same behavior, with the teams 0
and 1, which move first in turn.

  rollcast act boards --game shogi
  rollcast act boards --game connect_four --num-envs 128
  rollcast act boards --game 'go(board_size=9)' --records games
"""
PLAY_DESCRIPTION: Final = """\
Plays a model that a run exported (results/<run>/<Behavior>.onnx), without a learner: in this terminal, or with --usi as
an engine for shogi programs.

  rollcast play results/connect-four/ConnectFour.onnx --game connect_four
  rollcast play results/shogi/Shogi.onnx --game shogi --search 2
  rollcast play results/shogi/Shogi.onnx --game shogi --usi
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act boards`; `actor_client.settings.boards` checks their values."""
    _add_game(parser)
    parser.add_argument("--num-envs", metavar="N", help="games played together (default: 64)")
    parser.add_argument("--behavior", metavar="NAME", help="behavior to train (default: the only one of the run)")
    parser.add_argument(
        "--random-plies",
        metavar="N",
        help="begin each game with N random moves, which are not trained (default: 0)",
    )
    parser.add_argument("--records", metavar="DIR", help="write games to this folder: KIF for shogi, PGN for chess")
    parser.add_argument(
        "--records-every", metavar="N", help="write every Nth game, beginning with the first (default: 1000)"
    )
    add_old_spelling(parser, "--num-games", "--num-envs")
    add_opponent(parser)
    add_recording(parser)
    add_common(parser)


def add_play_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast play`; `actor_client.settings.boards` checks their values."""
    parser.add_argument("model", metavar="MODEL.onnx", help="the exported model")
    _add_game(parser)
    parser.add_argument("--usi", action="store_true", help="be an engine with the USI protocol, on standard input")
    parser.add_argument("--side", metavar="SIDE", help="your side: first, second or random (default: first)")
    parser.add_argument(
        "--temperature",
        metavar="T",
        help="draw moves from the policy's probabilities to the power of 1/T; 0 plays the likeliest (default: 0)",
    )
    parser.add_argument(
        "--search", metavar="PLIES", help="look so many plies ahead for wins and losses; 0 does not (default: 0)"
    )
    parser.add_argument(
        "--search-width", metavar="N", help="likeliest moves of each position that --search looks at (default: 8)"
    )
    add_old_spelling(parser, "--width", "--search-width")
    parser.add_argument("--records", metavar="DIR", help="write the games that end, or that you resign, to this folder")
    parser.add_argument("--seed", metavar="N", help="seed of drawn moves and of a random side (default: none)")


def _add_game(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--game",
        metavar="NAME",
        help="a game of OpenSpiel: shogi, chess, connect_four, othello, 'go(board_size=9)', ... (required)",
    )
    parser.add_argument(
        "--max-plies", metavar="N", help="a game is a draw after N plies (default: shogi 512, otherwise the game's own)"
    )


COMMAND: Final = Command(
    "play board games of two players from OpenSpiel",
    DESCRIPTION,
    add_flags,
    "actor_client.boards.app:run_boards",
    "actor,boards",
)
PLAY: Final = Command(
    COMMANDS["play"].help,
    PLAY_DESCRIPTION,
    add_play_flags,
    "actor_client.boards.play.app:run_play",
    "actor,boards",
)
