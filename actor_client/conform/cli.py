"""The command `rollcast act conform`."""

import argparse
from typing import Final

from actor_client.command_line import Command, add_learner, add_log

DESCRIPTION: Final = """\
Plays a scripted actor against a learner, and says for each rule of protos/README.md that it tries whether the learner keeps
it; with a broken rule, what came, and the bytes of the message before. The learner gets a behavior of four numbers and two choices,
and a few rows: use one of its own.

  rollcast act conform --learner 127.0.0.1:50051
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act conform`; `actor_client.settings.conform` checks their values."""
    parser.add_argument("--behavior", metavar="NAME", help="behavior to declare (default: the only one of the run)")
    add_learner(parser)
    add_log(parser)


COMMAND: Final = Command(
    "check a learner against the rules of the contract",
    DESCRIPTION,
    add_flags,
    "actor_client.conform.app:run_conform",
)
