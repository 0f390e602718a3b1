"""The command `rollcast act dm-env-rpc`."""

import argparse
from typing import Final

from actor_client.command_line import Command, add_common, add_recording, add_stepping

DESCRIPTION: Final = """\
Steps the worlds of a server that speaks dm_env_rpc, in any language. Actions and observations are those that the server
declares.

  rollcast act dm-env-rpc 127.0.0.1:9000 --num-envs 8
  rollcast act dm-env-rpc 127.0.0.1:9000 --create level=maze --create size=9 --seed-setting seed
  rollcast act dm-env-rpc 127.0.0.1:9000 --world arena --join team=red --reward score --ignore caption
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act dm-env-rpc`; `actor_client.settings.dm_env_rpc` checks their values."""
    parser.add_argument("server", metavar="HOST:PORT", help="address of the server of worlds")
    parser.add_argument("--num-envs", metavar="N", help="connections, each with a world and an agent (default: 1)")
    parser.add_argument(
        "--world", metavar="NAME", help="join this world, which exists (default: each connection creates one)"
    )
    parser.add_argument(
        "--create",
        metavar="KEY=VALUE",
        action="append",
        help="a setting with which worlds are created; may be repeated",
    )
    parser.add_argument(
        "--join", metavar="KEY=VALUE", action="append", help="a setting with which agents join; may be repeated"
    )
    parser.add_argument(
        "--seed-setting",
        metavar="NAME",
        help="give each world a seed by this setting of a reset (default: the server draws its own)",
    )
    parser.add_argument(
        "--reward", metavar="NAME", help="the observation that is the reward, and not observed (default: reward)"
    )
    parser.add_argument(
        "--observe",
        metavar="NAME",
        action="append",
        help="observe this; may be repeated (default: all but the reward and discount)",
    )
    parser.add_argument(
        "--ignore", metavar="NAME", action="append", help="leave out an observation or an action; may be repeated"
    )
    parser.add_argument("--behavior", metavar="NAME", help="behavior to train (default: the only one of the run)")
    parser.add_argument(
        "--env-tls-ca", metavar="FILE", help="use TLS to the server of worlds; authority of its certificate"
    )
    parser.add_argument("--env-token-file", metavar="FILE", help="file with the token for the server of worlds")
    add_stepping(parser)
    add_recording(parser)
    add_common(parser)


COMMAND: Final = Command(
    "step the worlds of a dm_env_rpc server",
    DESCRIPTION,
    add_flags,
    "actor_client.dm_env_rpc.app:run_dm_env_rpc",
    "actor,dm-env-rpc",
)
