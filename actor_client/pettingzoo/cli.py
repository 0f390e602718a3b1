"""The flags of `rollcast act pettingzoo`."""

import argparse
from typing import Final

from actor_client.command_line import Command, add_common, add_opponent, add_recording, add_stepping

DESCRIPTION: Final = """\
Steps PettingZoo environments, in which several agents act: at once (the parallel interface) or in turns (AEC). Agents get
their behaviors, teams and groups by patterns of their names; of several patterns, the first that matches counts.

  rollcast act pettingzoo --env simple_spread_v3 --num-envs 8
  rollcast act pettingzoo --env connect_four_v3 --num-envs 16 --team 'player_1=1'
  rollcast act pettingzoo --env simple_tag_v3 --behavior 'adversary_*=Chaser' --behavior 'agent_*=Runner'
  rollcast act pettingzoo --env mine:make --group '*=team' --group-reward mean
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act pettingzoo`; `actor_client.settings.agents` checks their values."""
    parser.add_argument(
        "--env",
        metavar="ID",
        help="an id of PettingZoo or mpe2, a module with parallel_env or env, or module:callable (required)",
    )
    parser.add_argument("--env-kwargs", metavar="JSON", help="arguments of the environment, as a JSON object")
    parser.add_argument("--num-envs", metavar="N", help="environments stepped together (default: 1)")
    parser.add_argument(
        "--behavior",
        metavar="PATTERN=NAME",
        action="append",
        help="behavior of agents with such names, or NAME for all; may be repeated (default: the only one of the run, "
        "for agents with equal spaces)",
    )
    parser.add_argument(
        "--team",
        metavar="PATTERN=NUMBER",
        action="append",
        help="team of agents with such names; may be repeated (default: 0)",
    )
    parser.add_argument(
        "--group",
        metavar="PATTERN=NAME",
        action="append",
        help="group of agents with such names, or NAME for all; may be repeated (default: no groups)",
    )
    parser.add_argument(
        "--group-reward",
        metavar="KIND",
        help="own: agents in groups keep their rewards (default); sum or mean: the group gets the sum or the mean of "
        "its agents' rewards instead",
    )
    add_stepping(
        parser,
        "end the actor after N failures of one environment in a row; 100 of its steps cancel one failure (default: 3)",
    )
    add_opponent(parser)
    add_recording(parser)
    add_common(parser)


COMMAND: Final = Command(
    "step PettingZoo environments, in which several agents act",
    DESCRIPTION,
    add_flags,
    "actor_client.pettingzoo.app:run_pettingzoo",
    "actor,pettingzoo",
)
