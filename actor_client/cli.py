"""The command `rollcast-actor`.

Heavy modules are imported inside the commands that need them, so that `--help` and `--version` answer at once.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from actor_client.command_line import StrictParser
from actor_client.exits import ActorError, ExitCode
from actor_client.platform import plain_interrupts
from actor_client.unity import cli as unity_cli

_EXIT_CODES = "exit codes:\n" + "\n".join(f"  {code.value:3d}  {code.help}" for code in ExitCode)
_EVALUATIONS = """\
A learner that evaluates (rollcast-learner evaluate, rollcast.evaluation) needs no other actor: this one resets its
environments, plays whole episodes without training, and goes back."""
_VARIABLES = "Each option can also be given as a variable, as in ROLLCAST_ACTOR_NUM_ENVS=8 for --num-envs 8."


class _Parser(StrictParser):
    """A parser that reports a wrong command line with this project's exit code."""

    def error(self, message: str) -> NoReturn:
        raise ActorError(ExitCode.USAGE, f"{message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands; `run` in the parsed arguments is the function of the chosen one."""
    parser = _Parser(
        prog="rollcast-actor",
        description="Steps environments with the newest policy and streams what happens to a learner.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    gym = commands.add_parser(
        "gym",
        help="step Gymnasium environments, or an object of your own with their interface",
        description="Steps Gymnasium environments, or an object of your own with their interface.",
        epilog=f"{_EVALUATIONS}\n\n{_VARIABLES}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    _add_gym(gym)
    unity = commands.add_parser(
        "unity",
        help="serve Unity players: start a build, or wait for the editor",
        description=unity_cli.DESCRIPTION,
        epilog=f"{_VARIABLES}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    unity_cli.add_flags(unity)
    health = commands.add_parser(
        "healthcheck",
        help="exit with 0 if an actor on this machine steps, or waits for its learner",
        description="Looks at the file that an actor touches (--heartbeat-file).",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    health.add_argument("--heartbeat-file", metavar="FILE", required=True, help="the file")
    health.add_argument("--max-age", metavar="S", type=_seconds, default=30.0, help="oldest beat (default: 30)")
    health.set_defaults(run=_healthcheck)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    for name in ("stdout", "stderr"):  # None where the caller closed them, as in `... >&-`
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    try:
        with plain_interrupts():
            return _run(arguments)
    except BrokenPipeError:  # the reader of our output has gone, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left to be written at exit
        return ExitCode.OK


def _run(arguments: Sequence[str] | None) -> int:
    try:
        parser = build_parser()
        parsed = parser.parse_args(arguments)
        if parsed.version:
            return _version()
        if parsed.command is None:
            parser.print_help()
            return ExitCode.USAGE
        run: Callable[[argparse.Namespace], int] = parsed.run
        return run(parsed)
    except ActorError as error:
        with suppress(OSError):  # nobody reads it any more, or the disk is full; the code says it too
            print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    finally:
        sys.stdout.flush()  # at exit nobody could catch what it raises


def _add_gym(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", metavar="ID", help="a Gymnasium id, package:id, or module:callable (required)")
    parser.add_argument("--env-kwargs", metavar="JSON", help="arguments of the environment, a JSON object")
    parser.add_argument("--num-envs", metavar="N", help="environments stepped together (default: 1)")
    parser.add_argument("--vector", action="store_true", help="use the environment's own vector entry point")
    parser.add_argument("--behavior", metavar="NAME", help="behavior to train (default: the run's only one)")
    parser.add_argument("--max-env-failures", metavar="N", help="failures in a row that end the actor (default: 3)")
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        help="act without a learner, for --record: module:callable, or a model that a run exported (FILE.onnx)",
    )
    parser.add_argument("--seed", metavar="N", help="seed of the environments, with --policy (default: 0)")
    unity_cli.add_recording(parser)
    unity_cli.add_common(parser)
    parser.set_defaults(run=_gym)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _healthcheck(parsed: argparse.Namespace) -> int:
    from actor_client.heartbeat import check

    print(check(Path(parsed.heartbeat_file), parsed.max_age))
    return ExitCode.OK


def _gym(parsed: argparse.Namespace) -> int:
    # gRPC tells of every connection that ends; the log has its own lines for that. Set before gRPC is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from actor_client.app import run_gym, run_local
        from actor_client.settings.commands import GymSettings
        from actor_client.settings.loading import load
    except ModuleNotFoundError as error:
        raise ActorError(
            ExitCode.MISSING_EXTRA,
            f"this command needs the module {error.name!r}; in the checkout: pip install '.[actor,gym]'",
        ) from None
    flags = {name: value for name, value in vars(parsed).items() if name not in {"command", "run", "version"}}
    settings = load(GymSettings, flags)
    return run_gym(settings) if settings.policy is None else run_local(settings)


def _version() -> int:
    from importlib.metadata import PackageNotFoundError, version

    from rollcast.limits import PROTOCOL_REVISION

    print(f"rollcast {version('rollcast')}, protocol {PROTOCOL_REVISION}, Python {sys.version.split()[0]}")
    for package in ("grpcio", "protobuf", "numpy", "onnxruntime", "gymnasium"):
        try:
            print(f"  {package} {version(package)}")
        except PackageNotFoundError:
            print(f"  {package} (not installed)")
    return ExitCode.OK
