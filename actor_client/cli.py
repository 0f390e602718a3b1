"""The commands of the actor.

Heavy modules are imported inside the commands that need them, so that `--help` and `--version` answer at once.
"""

import argparse
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final, NoReturn

from rollcast.console import COMMANDS, add_completion, print_versions, report_old_package
from rollcast.parsers import StrictParser
from rollcast.streams import prepare_streams
from rollcast.text import MAX_ERROR_CHARS, printable

from actor_client.boards.cli import PLAY
from actor_client.command_line import Command, flags_of, missing_extra
from actor_client.exits import WORKER_THREADS, ActorError, ExitCode
from actor_client.platform import exit_at_once, plain_interrupts
from actor_client.registry import GROUP, Entry, entries

PROG = "rollcast-actor"
_EXIT_CODES = "exit codes:\n" + "\n".join(f"  {code.value:3d}  {code.help}" for code in ExitCode)
_OF_ROLLCAST = frozenset({"play", "join"})
"""Commands that `rollcast` has itself, and not `rollcast act`."""
_LOAD_SECONDS = 1.0
_HEARTBEAT = "ROLLCAST_ACTOR_HEARTBEAT_FILE"
_VARIABLES = "Each option can also be set by an environment variable: ROLLCAST_ACTOR_NUM_ENVS=8 sets --num-envs 8."


class _Parser(StrictParser):
    """A parser that reports a wrong command line with this project's exit code.

    Attributes:
        fill: Adds texts and flags, when the parser is first used; None if it has them.
    """

    fill: Callable[[], None] | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options, epilog=_EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """Parses a command line; see `argparse`."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill()
        return super().parse_known_args(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        raise ActorError(ExitCode.USAGE, f"{message}; see {self.prog} --help")


def build_parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Returns the parser of the commands; `run` in the parsed arguments is the function of the chosen command.

    Args:
        prog: The name by which the user called the program. `rollcast` has some of the commands itself, and the others as
            `rollcast act`.
    """
    parser = _Parser(
        prog=prog,
        description="Steps environments with the newest policy and streams the experience to a learner.",
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    add_completion(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    if prog != "rollcast":
        for entry in entries():
            if entry.name not in _OWN_COMMANDS:
                _add_entry(commands, entry)
    for name, add in _OWN_COMMANDS.items():
        if prog == PROG or (name in _OF_ROLLCAST) is (prog == "rollcast"):
            add(commands)
    return parser


def _add_healthcheck(commands: Any) -> None:
    health = commands.add_parser(
        "healthcheck",
        help="exit with 0 if an actor on this machine is stepping or waiting for its learner",
        description="Checks the age of the heartbeat file that an actor updates. Start the actor with --heartbeat-file "
        f"FILE and give the same FILE here, or set {_HEARTBEAT} for both.",
    )
    health.add_argument(
        "--heartbeat-file", metavar="FILE", help=f"the actor's heartbeat file (required unless {_HEARTBEAT} is set)"
    )
    health.add_argument(
        "--max-age",
        metavar="S",
        type=_seconds,
        default=30.0,
        help="largest allowed age of the last beat in seconds (default: 30)",
    )
    health.set_defaults(run=_healthcheck)


def _add_join(commands: Any) -> None:
    join = commands.add_parser(
        "join",
        help=COMMANDS["join"].help,
        description="Asks for a join code, which `rollcast certs init` or `certs token --join` prints, without "
        "showing it, and writes the folder that --certs of the other commands names.",
    )
    join.add_argument("folder", metavar="DIR", type=Path, help="the folder")
    join.set_defaults(run=_join)


def _add_entry(commands: Any, entry: Entry) -> None:
    """Adds a command that a package declares. A package other than Rollcast's is imported only if its command is used."""
    parser = _add_empty(commands, entry.name, entry.load().help if entry.is_own else entry.help)

    def fill() -> None:
        command = entry.load()
        with entry.guarded():
            _fill(parser, command, entry.guarded)

    if entry.is_own:
        fill()
    else:
        parser.fill = fill


def _add_play(commands: Any) -> None:
    _fill(_add_empty(commands, "play", PLAY.help), PLAY, nullcontext)


def _add_empty(commands: Any, name: str, help_text: str) -> _Parser:
    parser: _Parser = commands.add_parser(
        name,
        help=help_text,
        argument_default=argparse.SUPPRESS,
    )
    return parser


def _fill(parser: _Parser, command: Command, guarded: Callable[[], AbstractContextManager[None]]) -> None:
    """Adds the texts and flags of a command to its parser.

    Args:
        parser: The parser.
        command: The command.
        guarded: Within it, the command is imported when it runs.
    """
    parser.description = command.description
    parser.epilog = f"{command.epilog}{_VARIABLES}\n\n{_EXIT_CODES}"
    command.add_flags(parser)
    parser.set_defaults(run=partial(_act, command, guarded))


def _act(command: Command, guarded: Callable[[], AbstractContextManager[None]], parsed: argparse.Namespace) -> int:
    """Imports and runs a command.

    Raises:
        ActorError: A module is missing, or the command line is wrong.
    """
    try:
        with guarded():
            run: Callable[[Mapping[str, object]], int] = EntryPoint("run", command.run, GROUP).load()
    except ModuleNotFoundError as error:
        raise missing_extra(error, command.extras) from None
    return run(flags_of(parsed))


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Runs a command and returns its exit code.

    Args:
        arguments: The command line; None for that of the process.
        prog: The name by which the user called the program.
    """
    prepare_streams()
    try:
        with plain_interrupts():
            code = _run(arguments, prog)
            _leave_loads(code)
            return code
    except BrokenPipeError:  # the reader of the output has gone, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for output that is still written at exit
        return ExitCode.OK
    except Exception:
        if report_old_package():
            return ExitCode.SHADOWED
        raise


def _leave_loads(code: int) -> None:
    """Ends the process if a policy is still being loaded: it may never be, and the interpreter would wait for it."""
    loads = [thread for thread in threading.enumerate() if thread.name.startswith(WORKER_THREADS)]
    for thread in loads:
        thread.join(_LOAD_SECONDS)
    if any(thread.is_alive() for thread in loads):
        exit_at_once(code)


def _run(arguments: Sequence[str] | None, prog: str) -> int:
    # gRPC logs each connection that ends; Rollcast logs these itself. gRPC reads the variable when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        parser = build_parser(prog)
        parsed = parser.parse_args(arguments)
        if parsed.version:
            print_versions()
            return ExitCode.OK
        if parsed.command is None:
            parser.print_help()
            return ExitCode.USAGE
        run: Callable[[argparse.Namespace], int] = parsed.run
        return run(parsed)
    except ActorError as error:
        if error.exit_code is ExitCode.MISSING_EXTRA and report_old_package():  # too old to have the module
            return ExitCode.SHADOWED
        with suppress(OSError):  # the output is closed or the disk is full; the exit code reports the error too
            print(f"error: {printable(error.message, MAX_ERROR_CHARS)}", file=sys.stderr)
        return error.exit_code
    finally:
        sys.stdout.flush()  # an exception at exit could not be caught


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _healthcheck(parsed: argparse.Namespace) -> int:
    from actor_client.heartbeat import check

    file = parsed.heartbeat_file or os.environ.get(_HEARTBEAT)
    if not file:
        raise ActorError(
            ExitCode.USAGE,
            "healthcheck needs an actor's heartbeat file: start the actor with --heartbeat-file FILE, and give "
            f"the same --heartbeat-file FILE here, or set {_HEARTBEAT} for both",
        )
    print(check(Path(file), parsed.max_age))
    return ExitCode.OK


def _join(parsed: argparse.Namespace) -> int:
    from getpass import getpass

    from actor_client.joining import join

    try:
        code = getpass("join code: ") if sys.stdin.isatty() else sys.stdin.readline()
    except EOFError:
        code = ""
    address = join(parsed.folder, code)
    print(f"joined the learner at {address}; start actors with --certs {parsed.folder}")
    return ExitCode.OK


_OWN_COMMANDS: Final[Mapping[str, Callable[[Any], None]]] = {
    "play": _add_play,
    "join": _add_join,
    "healthcheck": _add_healthcheck,
}
"""Commands that no package can replace."""
