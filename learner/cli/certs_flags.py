"""The command line of ``certs``; the code that makes certificates is imported when one is made."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rollcast.auth import Role
from rollcast.parsers import add_old_spelling

_DAYS = 365.0
DEFAULT_PORT: Final = 50051


def add_certs(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """Adds the commands of ``certs``.

    Args:
        parser: The parser of ``certs``.
        run: Runs the parsed command.
    """
    commands = parser.add_subparsers(dest="certs_command", metavar="COMMAND", required=True)
    init = commands.add_parser("init", help="make an authority, the learner's certificate and a token for actors")
    _add_folder(init)
    _add_hosts(init)
    _add_port(init, DEFAULT_PORT, "for join codes (default: %(default)s)")
    client = commands.add_parser("client", help="make a client's certificate, for --tls-client-ca")
    _add_folder(client)
    _add_principal(client)
    _add_days(client)
    renew = commands.add_parser("renew", help="make a new certificate of the learner, with the same authority")
    _add_folder(renew)
    _add_hosts(renew)
    _add_days(renew)
    token = commands.add_parser(
        "token", help="add a token of an actor, a viewer, an operator or a trainer, and print it"
    )
    _add_folder(token)
    _add_principal(token)
    _add_port(token, None, "for --join (default: that of certs init)")
    token.add_argument("--max-sessions", metavar="N", type=_count, help="most sessions at once")
    token.add_argument("--behaviors", metavar="A,B", help="behaviors that it may play (default: all)")
    token.add_argument("--not-after", metavar="DATE", help="when it expires, as in 2027-01-31 (default: never)")
    form = token.add_mutually_exclusive_group()
    form.add_argument("--output", metavar="FILE", type=Path, help="write it to this file instead")
    add_old_spelling(token, "--out", "--output")
    form.add_argument("--join", action="store_true", help="print a join code of an actor that contains it")
    for each in (init, client, renew, token):
        each.set_defaults(run=run)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of the certificates")


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="name or IP address at which actors reach the learner, the first for join codes (localhost, 127.0.0.1, ::1 and "
        "this machine's name are always included)",
    )


def _add_principal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the principal")
    parser.add_argument(
        "--role", choices=[role.value for role in Role], default=Role.ACTOR.value, help="its role (default: actor)"
    )


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", metavar="N", type=_days, default=_DAYS, help="days of validity (default: 365)")


def _add_port(parser: argparse.ArgumentParser, default: int | None, use: str) -> None:
    parser.add_argument("--port", metavar="N", type=_port, default=default, help=f"the learner's port, {use}")


def _days(text: str) -> float:
    days = float(text)
    if not 0 < days <= 3650:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 0 to 3650")
    return days


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return port


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000000")
    return count
