"""The command `rollcast-learner`.

Heavy modules are imported inside the commands that need them, so that `--help`, `check-config` and the operator's
commands answer at once and work without torch.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from learner.commands.evaluate import add_evaluate
from learner.common.exits import ExitCode, UserError

if TYPE_CHECKING:
    from learner.commands.operator import Operator

_VALUES: Sequence[tuple[str, str, str]] = (
    ("env", "BUILD", "the Unity player that gateways start; without it they wait for the editor"),
    ("base-port", "N", "port of a gateway's first player (default: 5005)"),
    ("num-envs", "N", "players of a gateway (default: 1)"),
    ("num-areas", "N", "training areas in a player (default: 1)"),
    ("timeout-wait", "S", "seconds that a player may take to answer (default: 60)"),
    ("max-lifetime-restarts", "N", "restarts of a player, -1 for any number (default: 10)"),
    ("restarts-rate-limit-n", "N", "of them within the period, -1 for any number (default: 1)"),
    ("restarts-rate-limit-period-s", "S", "the period in seconds (default: 60)"),
    ("width", "N", "width of a player's window in pixels (default: 84)"),
    ("height", "N", "its height (default: 84)"),
    ("quality-level", "N", "Unity's quality level (default: 5)"),
    ("time-scale", "X", "how much faster than real time Unity runs (default: 20)"),
    ("target-frame-rate", "N", "Unity's target frame rate, -1 for the fastest (default: -1)"),
    ("capture-frame-rate", "N", "Unity's capture frame rate (default: 60)"),
)
_SWITCHES: Sequence[tuple[str, str]] = (
    ("no-graphics", "players draw nothing"),
    ("no-graphics-monitor", "players draw nothing but the first one"),
    ("inference", "act without training"),
    ("debug", "log more"),
)


def add_mlagents_flags(parser: argparse.ArgumentParser) -> None:
    """Adds those that a learner has no other use for than to tell its gateways and to keep them in the run folder."""
    group = parser.add_argument_group("Unity, as in mlagents-learn")
    for name, shown, text in _VALUES:
        group.add_argument(f"--{name}", metavar=shown, help=text)
    for name, text in _SWITCHES:
        group.add_argument(f"--{name}", action="store_const", const="true", help=text)
    group.add_argument(
        "--env-args", nargs=argparse.REMAINDER, metavar="...", help="arguments of the player: all that follows"
    )


_RETURN = "Environment/Cumulative Reward"
_EXIT_CODES = "exit codes:\n" + "\n".join(f"  {code.value:3d}  {code.help}" for code in ExitCode)


class _Parser(argparse.ArgumentParser):
    """A parser that reports a wrong command line with this project's exit code."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(ExitCode.USAGE, f"{message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands; `run` in the parsed arguments is the function of the chosen one."""
    parser = _Parser(
        prog="rollcast-learner",
        description="Trains policies from experience that actors send over gRPC.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_serve(commands.add_parser("serve", help="train: listen for actors, learn, broadcast policies"))
    _add_check_config(commands.add_parser("check-config", help="show the settings a run file resolves to"))
    for name, text, function in (
        ("status", "show the state of a running learner, its books and its actors", _status),
        ("page", "print the link to the status page, with the operator's token", _page),
        ("pause", "pause training and hold the actors", _pause),
        ("resume", "end a pause", _resume),
        ("save", "save a checkpoint now", _save),
        ("drain", "end a run in good order; its actors exit", _drain),
        ("healthcheck", "exit with 0 if the learner accepts actors", _healthcheck),
    ):
        _add_operator_command(commands.add_parser(name, help=text), function)
    add_evaluate(commands.add_parser("evaluate", help="measure a run's policy: so many episodes, nothing is trained"))
    _add_runs(commands.add_parser("runs", help="list runs: their state, steps and best return"))
    _add_compare(commands.add_parser("compare", help="draw the curves of runs as a picture"))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. To be called once, in the main thread: it sets up the process."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # whoever asks too early shall not end it; see operator_signals
        signal.signal(number, signal.SIG_IGN)
    # Until `serve` handles signals, Ctrl-C ends the process as the system does: an exception could come up in the
    # middle of an import that catches everything, and be lost.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # gRPC has lines of its own for what is said here in better words. Set before gRPC is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in ("stdout", "stderr"):  # None where the caller closed them, as in `... >&-`
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    try:
        return _run(arguments)
    except BrokenPipeError:  # the reader of our output has gone, as in `... | head`
        return ExitCode.OK
    finally:
        for stream in (sys.stdout, sys.stderr):
            _flush_or_forget(stream)


def _flush_or_forget(stream: TextIO) -> None:
    """Writes what waits, or gives it up where nobody reads it or the disk is full: at exit it would change the code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    try:
        parser = build_parser()
        parsed = parser.parse_args(arguments)
        if parsed.version:
            with _written_out():
                return _version()
        if parsed.command is None:
            parser.print_help()
            return ExitCode.USAGE
        run: Callable[[argparse.Namespace], int] = parsed.run
        if parsed.command == "serve":  # whose console may be lost; it trains on, and keeps a log in its folder
            return run(parsed)
        with _written_out():
            return run(parsed)
    except UserError as error:
        with suppress(OSError):  # whoever reads it may be gone; the code says it too
            for line in error.details:
                print(f"  {line}", file=sys.stderr)
            print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code


def _add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_file", nargs="?", type=Path, metavar="RUN.yaml", help="the run file")
    parser.add_argument("--run-id", metavar="ID", help="name of the run; its folder is RESULTS/ID")
    parser.add_argument("--results-dir", metavar="DIR", help="where run folders are (default: results)")
    parser.add_argument(
        "--resume", nargs="?", const="true", metavar="auto", type=_resume_word,
        help="go on with the run; auto: if there is one",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint", metavar="WHICH",
        help="with --resume: go on from last (default), best, a step, or a .pt file",
    )  # fmt: skip
    parser.add_argument("--force", action="store_const", const="true", help="start anew in a folder that holds a run")
    parser.add_argument("--initialize-from", metavar="ID", help="begin with the networks of another run")
    parser.add_argument("--seed", metavar="N", help="seed of networks, minibatches, actors and environments")
    parser.add_argument("--torch-device", metavar="DEVICE", help="cpu, cuda, cuda:1 (default: cuda if there is one)")
    parser.add_argument("--deterministic", action="store_const", const="true", help="actors take the likeliest action")
    parser.add_argument("--address", metavar="HOST:PORT", help="where actors connect (default: 127.0.0.1:50051)")
    parser.add_argument("--insecure", action="store_const", const="true", help="allow plain text beyond this machine")
    parser.add_argument("--control-address", metavar="HOST:PORT", help="where operators connect; loopback only")
    parser.add_argument(
        "--http-address", metavar="HOST:PORT",
        help="status page and metrics (default: 127.0.0.1:9464, or a free port if it is taken)",
    )  # fmt: skip
    parser.add_argument("--target-return", metavar="R", help="stop once the mean return reaches R")
    parser.add_argument("--max-wall-seconds", metavar="S", help="stop after S seconds")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console, json or mlagents")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="set_items",
        help="set any value of the run file, as in behaviors.CartPole.max_steps=1e5",
    )  # fmt: skip
    add_mlagents_flags(parser)


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="where run folders are")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_runs)


def _runs(parsed: argparse.Namespace) -> int:
    from learner.commands.list_runs import runs_text

    sys.stdout.write(runs_text(Path(parsed.results_dir), as_json=parsed.json) + "\n")
    return ExitCode.OK


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names of runs, or paths of run folders")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="where run folders are")
    parser.add_argument("--out", metavar="FILE.png", type=Path, default=Path("compare.png"), help="the picture")
    parser.add_argument("--key", metavar="KEY", default=_RETURN, help=f"the statistic (default: {_RETURN})")
    parser.set_defaults(run=_compare)


def _compare(parsed: argparse.Namespace) -> int:
    from learner.commands.compare_runs import compare

    path = compare(Path(parsed.results_dir), parsed.runs, parsed.key, parsed.out)
    sys.stdout.write(f"{path}\n")
    return ExitCode.OK


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_settings_arguments(parser)
    parser.set_defaults(run=_serve)


def _add_check_config(parser: argparse.ArgumentParser) -> None:
    _add_settings_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the settings alone, as JSON")
    form.add_argument("--explain", action="store_true", help="print beside each value what it means")
    parser.add_argument("--can-start", action="store_true", help="fail as serve would, for settings and run folder")
    parser.set_defaults(run=_check_config)


def _add_operator_command(parser: argparse.ArgumentParser, function: Callable[[argparse.Namespace], int]) -> None:
    if function is not _page:  # which reads the run folder, and asks nobody
        parser.add_argument("--control", metavar="HOST:PORT", help="the learner's control address")
    parser.add_argument("--run-id", metavar="ID", help="find the address in this run's folder instead")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="where run folders are")
    if function is _status:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--watch", nargs="?", const=2.0, type=_seconds, metavar="SECONDS", help="go on until Ctrl-C (every 2 s)"
        )
    parser.set_defaults(run=function)


_NOT_SETTINGS = frozenset({"can_start", "command", "explain", "json", "run", "run_file", "set_items", "version"})
_RESUME_WORDS = frozenset({"auto", "true", "false"})


def _seconds(text: str) -> float:
    """Reads the time between two looks; a mistyped one must neither flood the learner nor seem to hang."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time between 0.1 and 3600 seconds")
    return seconds


def _resume_word(text: str) -> str:
    """Refuses a run file behind --resume, which argparse would take for its value."""
    if text.lower() not in _RESUME_WORDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no value of it: write the run file before --resume, or --resume=auto"
        )
    return text


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def _written_out() -> Iterator[None]:
    """Turns a full disk behind the standard output into one line; half an answer must not pass for a whole one."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise UserError(
            ExitCode.NOT_SAVED, f"the output cannot be written: {error.strerror}; make room, or write it elsewhere"
        ) from None


@contextmanager
def _learner_extra(command: str) -> Iterator[None]:
    """Turns a module that is not installed into one line that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            ExitCode.MISSING_EXTRA,
            f"{command} needs the module {error.name!r}; in the checkout: pip install '.[learner]'",
        ) from None


def _flags(parsed: argparse.Namespace) -> dict[str, object]:
    return {name: value for name, value in vars(parsed).items() if name not in _NOT_SETTINGS and value is not None}


def _serve(parsed: argparse.Namespace) -> int:
    with _learner_extra("serve"):
        from learner.settings.load import load_run_options

    loaded = load_run_options(parsed.run_file, cli=_flags(parsed), set_items=parsed.set_items, environ=dict(os.environ))
    with _learner_extra("serve"):
        from learner.app import serve
    return serve(loaded)


def _check_config(parsed: argparse.Namespace) -> int:
    with _learner_extra("check-config"):
        from learner.commands.preflight import check_start, missing_parts
        from learner.settings.check import check_config
        from learner.settings.load import load_run_options

    given = {"cli": _flags(parsed), "set_items": parsed.set_items, "environ": dict(os.environ)}
    if parsed.can_start:
        check_start(load_run_options(parsed.run_file, **given))
    shown = {"as_json": parsed.json, "explain": parsed.explain, "missing": missing_parts}
    return check_config(parsed.run_file, output=sys.stdout, errors=sys.stderr, **shown, **given)


def _operator(parsed: argparse.Namespace) -> Operator:
    from learner.commands.operator import Operator

    return Operator.find(parsed.control, parsed.run_id, Path(parsed.results_dir))


def _status(parsed: argparse.Namespace) -> int:
    from learner.commands.status_text import render_status, status_document, watch

    with _operator(parsed) as operator:

        def shown() -> str:
            status = operator.status()
            if parsed.json:
                return status_document(status, indent=2 if parsed.watch is None else None)
            return render_status(status, operator.page)

        if parsed.watch is None:
            print(shown())
        else:
            watch(shown, parsed.watch, sys.stdout, separator="\n" if parsed.json else "\n\n")
    return ExitCode.OK


def _page(parsed: argparse.Namespace) -> int:
    from learner.commands.operator import page_link

    print(page_link(parsed.run_id, Path(parsed.results_dir)))
    return ExitCode.OK


def _pause(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        operator.pause()
    print("paused")
    return ExitCode.OK


def _resume(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        operator.resume()
    print("training goes on")
    return ExitCode.OK


def _save(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        print(operator.save_checkpoint())
    return ExitCode.OK


def _drain(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        operator.drain(final=True)
    print("the run ends; its actors exit")
    return ExitCode.OK


def _healthcheck(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        serving = operator.accepts_actors()
    print("serving" if serving else "not serving")
    return ExitCode.OK if serving else ExitCode.UNREACHABLE


def _version() -> int:
    from importlib.metadata import PackageNotFoundError, version

    from rollcast.limits import PROTOCOL_REVISION

    print(f"rollcast {version('rollcast')}, protocol {PROTOCOL_REVISION}, Python {sys.version.split()[0]}")
    for package in ("grpcio", "protobuf", "numpy", "torch", "onnx", "onnxruntime"):
        try:
            print(f"  {package} {version(package)}")
        except PackageNotFoundError:
            print(f"  {package} (not installed)")
    return ExitCode.OK
