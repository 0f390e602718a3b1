"""The command `rollcast act gym`."""

import argparse
from typing import Final

from rollcast.parsers import add_wrappers

from actor_client.command_line import Command, add_common, add_recording, add_stepping

_EVALUATIONS: Final = """\
Evaluations (rollcast evaluate, rollcast.evaluation) need no other actor: this one resets its environments, plays
whole episodes without training, and then continues to train.

"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act gym`; `actor_client.settings.commands` checks their values."""
    parser.add_argument("--env", metavar="ID", help="a Gymnasium id, package:id, or module:callable (required)")
    parser.add_argument("--env-kwargs", metavar="JSON", help="arguments of the environment, as a JSON object")
    parser.add_argument("--num-envs", metavar="N", help="environments stepped together (default: 1)")
    parser.add_argument("--vector", action="store_true", help="use the environment's own vector entry point")
    parser.add_argument("--behavior", metavar="NAME", help="behavior to train (default: the only one of the run)")
    add_stepping(parser)
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        help="act with this policy and without a learner, for --record: module:callable, or a model that a run "
        "exported (FILE.onnx)",
    )
    parser.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)  # for `train`
    parser.add_argument("--seed", metavar="N", help="seed of the environments; only with --policy (default: 0)")
    add_wrappers(parser)
    add_recording(parser)
    add_common(parser)


COMMAND: Final = Command(
    "step Gymnasium environments, or your own objects with the same interface",
    "Step Gymnasium environments, or your own objects with the same interface.",
    add_flags,
    "actor_client.gym.app:run_gym",
    "actor,gym",
    _EVALUATIONS,
)
