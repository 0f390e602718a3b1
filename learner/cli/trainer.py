"""Implements ``trainer``: a process that trains for a learner on another machine, alone or as one of several ranks."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from rollcast.addresses import split_address
from rollcast.parsers import add_old_spelling
from rollcast.signals import stop_signal_numbers

from learner.cli.run_flags import needing_extra
from learner.shared.exits import ExitCode, UserError
from learner.shared.introduction import Introduction
from learner.shared.settings.addresses import AUTHORITY, is_local

if TYPE_CHECKING:
    from rollcast.tls import ClientSecurity

REACH_SECONDS: Final = 600.0
"""How long a trainer waits for a learner that cannot be reached: it may be started later, or again."""
TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name
"""Name of the token's file in a folder of certificates."""
_TORCHRUN: Final = (
    "warning: torchrun listens on all addresses without a key, and with --standalone or --rdzv-backend c10d runs code of whoever "
    "reaches it: start this command without it, with --trainers and --rank"
)
_FILES: Final = (
    ("--tls-ca", "authority of the learner's certificate (default: in DIR)"),
    ("--tls-cert", "certificate of this trainer"),
    ("--tls-key", "private key of --tls-cert"),
    ("--token-file", "file with a token of the role trainer (default: in DIR)"),
)


def add_trainer(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of ``trainer``."""
    parser.add_argument("--learner", metavar="HOST:PORT", required=True, help="the learner's --trainer-address")
    add_old_spelling(parser, "--front", "--learner")
    parser.add_argument("--certs", metavar="DIR", type=Path, help=f"folder with {AUTHORITY} and {TOKEN_FILE}")
    for flag, text in _FILES:
        parser.add_argument(flag, metavar="FILE", type=Path, help=text)
    parser.add_argument("--server-name", metavar="NAME", help="name in the learner's certificate, if it is not HOST")
    parser.add_argument("--insecure", action="store_true", help="connect in plain text to another machine")
    parser.add_argument(
        "--trainers",
        metavar="N",
        type=int,
        help="trainers of the run, as serve has them (default: as a launcher says, or 1)",
    )
    parser.add_argument("--rank", metavar="K", type=int, help="number of this one, from 0 to N - 1; 0 saves the run")
    parser.add_argument(
        "--address", metavar="IP",
        help="address of this machine for the other trainers (default: the one from which it reaches the learner)",
    )  # fmt: skip
    add_old_spelling(parser, "--listen", "--address")
    parser.add_argument(
        "--restarts", metavar="N", type=int, default=0,
        help="start again, up to N times, if the learner or another trainer was lost (default: 0)",
    )  # fmt: skip
    parser.set_defaults(run=_train_for)


def _say(line: str) -> None:
    sys.stderr.write(f"trainer: {line}\n")


@needing_extra("trainer")
def _train_for(parsed: argparse.Namespace) -> int:
    """Trains for a learner until its run ends, and returns the exit code.

    Raises:
        UserError: The learner was not reached, or does not take this trainer.
    """
    from learner.start.remote_dial import dial_front  # noqa: PLC0415 - heavy
    from learner.start.trainer import TrainerProgram, place_among_ranks, prepare  # noqa: PLC0415 - heavy

    security = _security(parsed)
    place = rank, ranks = place_among_ranks() if parsed.trainers is parsed.rank is None else _place(parsed)
    if parsed.restarts > 0:
        from learner.cli.restarting import supervise  # noqa: PLC0415 - of this case

        return supervise(
            parsed.arguments, parsed.restarts, again=frozenset({ExitCode.TRAINER_FAILED}), who="the trainer"
        )
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _say(_TORCHRUN)
    if "RANK" in os.environ:
        prepare()  # a launcher ends it
    else:
        for number in stop_signal_numbers():
            signal.signal(number, _end)
    introduction = Introduction(rank, ranks, version("rollcast"))
    connection, meet = dial_front(parsed.learner, security, introduction, REACH_SECONDS, _say, listen=parsed.address)
    _say(f"trains as rank {rank} of {ranks} for the learner at {parsed.learner}, whose log has what happens")
    return TrainerProgram(connection, None, place, meet, is_awaited=True, say=_say).run()


def _place(parsed: argparse.Namespace) -> tuple[int, int]:
    """Returns number and count of the trainers as the flags say.

    Raises:
        UserError: They do not fit each other.
    """
    if parsed.trainers is None or parsed.rank is None or not 0 <= parsed.rank < parsed.trainers:
        raise UserError(ExitCode.USAGE, "--trainers N and --rank K belong together, K from 0 to N - 1")
    return parsed.rank, parsed.trainers


def _end(number: int, _frame: FrameType | None) -> None:
    """Ends the process at once, as a kill would: each file of the run folder is written whole or not at all."""
    line = f"trainer: {signal.Signals(number).name} received: the learner continues with another trainer\n"
    with contextlib.suppress(OSError):
        os.write(2, line.encode())
    os._exit(ExitCode.INTERRUPTED)


def _security(parsed: argparse.Namespace) -> ClientSecurity:
    """Returns how to connect.

    Raises:
        UserError: The address is malformed, or in plain text on another machine, or a file cannot be used.
    """
    from rollcast.tls import ClientSecurity, IdentityError  # noqa: PLC0415 - heavy

    try:
        split_address(parsed.learner)
    except ValueError as error:
        raise UserError(ExitCode.USAGE, f"--learner {parsed.learner!r} {error}") from None
    folder: Path | None = parsed.certs
    ca = parsed.tls_ca or (None if folder is None else folder / AUTHORITY)
    token = parsed.token_file or (None if folder is None else folder / TOKEN_FILE)
    if ca is None and not parsed.insecure and not is_local(parsed.learner):
        raise UserError(
            ExitCode.USAGE,
            f"the connection to {parsed.learner} is plain text: give --certs DIR or --tls-ca FILE, or --insecure on a network "
            "you trust",
        )
    if (parsed.tls_cert is None) is not (parsed.tls_key is None):
        raise UserError(ExitCode.USAGE, "--tls-cert and --tls-key belong together: give both, or neither")
    if ca is None and (parsed.tls_cert is not None or parsed.server_name is not None):
        raise UserError(ExitCode.USAGE, "--tls-cert and --server-name need TLS: give --certs DIR or --tls-ca FILE")
    security = ClientSecurity(ca, parsed.tls_cert, parsed.tls_key, token, parsed.server_name)
    try:
        security.check()
    except IdentityError as error:
        raise UserError(ExitCode.USAGE, str(error)) from None
    return security
