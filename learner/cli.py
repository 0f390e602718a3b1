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
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rollcast.console import StrictParser, add_completion, report_old_package
from rollcast.signals import stop_signal_numbers
from rollcast.text import printable

from learner.commands.certs_flags import add_certs
from learner.commands.compare import add_compare
from learner.commands.early_end import EarlyEnd
from learner.commands.evaluate import add_evaluate
from learner.commands.remote_trainer import add_trainer
from learner.commands.run_flags import add_address, needing_extra
from learner.commands.runs import add_backup, add_runs
from learner.commands.tournament import add_tournament
from learner.common.exits import ExitCode, UserError
from learner.common.platform import operator_signal_numbers, prepare_streams

if TYPE_CHECKING:
    from learner.commands.operator import Operator

_VALUES: Sequence[tuple[str, str, str]] = (
    ("env", "BUILD", "Unity player that gateways start; without it they wait for the editor"),
    ("base-port", "N", "port of a gateway's first player (default: 5005)"),
    ("num-envs", "N", "players that each gateway starts (default: 1)"),
    ("num-areas", "N", "training areas in each player (default: 1)"),
    ("timeout-wait", "S", "seconds to wait for an answer of a player (default: 60)"),
    ("max-lifetime-restarts", "N", "limit of restarts of a player; -1 for no limit (default: 10)"),
    ("restarts-rate-limit-n", "N", "limit of restarts of a player within the period; -1 for no limit (default: 1)"),
    ("restarts-rate-limit-period-s", "S", "length of the period in seconds (default: 60)"),
    ("width", "N", "width of a player's window in pixels (default: 84)"),
    ("height", "N", "height of a player's window in pixels (default: 84)"),
    ("quality-level", "N", "Unity's quality level (default: 5)"),
    ("time-scale", "X", "speed of game time relative to real time (default: 20)"),
    ("target-frame-rate", "N", "Unity's target frame rate, -1 for the fastest (default: -1)"),
    ("capture-frame-rate", "N", "Unity's capture frame rate (default: 60)"),
)
_SWITCHES: Sequence[tuple[str, str]] = (
    ("no-graphics", "start players without graphics"),
    ("no-graphics-monitor", "start all players but the first without graphics"),
    ("inference", "act without training"),
    ("debug", "log more"),
)


def add_mlagents_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that a learner only passes to its gateways and saves in the run folder."""
    group = parser.add_argument_group("Unity, as in mlagents-learn")
    for name, shown, text in _VALUES:
        group.add_argument(f"--{name}", metavar=shown, help=text)
    for name, text in _SWITCHES:
        group.add_argument(f"--{name}", action="store_const", const="true", help=text)
    group.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="arguments for the player; takes all that follow, so it must be last",
    )


_EXIT_CODES = "exit codes:\n" + "\n".join(f"  {code.value:3d}  {code.help}" for code in ExitCode)


class _Parser(StrictParser):
    """A parser that ends with the learner's own exit code on an invalid command line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(ExitCode.USAGE, f"{message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands; the parsed `run` is the function of the chosen command."""
    parser = _Parser(
        prog="rollcast-learner",
        description="Trains policies from experience that actors send over gRPC.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    add_completion(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_init(commands.add_parser("init", help="write a commented run file to start from"))
    _add_serve(commands.add_parser("serve", help="train: listen for actors, learn, broadcast policies"))
    _add_check_config(commands.add_parser("check-config", help="show the settings a run file resolves to"))
    for name, text, function in (
        ("status", "show the state, books and actors of a running learner", _status),
        ("page", "print the link to the status page, with the operator's token", _page),
        ("pause", "pause training and hold the actors", _pause),
        ("resume", "end a pause", _resume),
        ("save", "save a checkpoint now", _save),
        ("drain", "save and end a run; its actors exit", _drain),
        ("release", "let an actor that is shut out for faults of form in again", _release),
        ("healthcheck", "exit with 0 if the learner accepts actors, or waits for its trainers", _healthcheck),
    ):
        _add_operator_command(commands.add_parser(name, help=text), function)
    add_certs(
        commands.add_parser("certs", help="make certificates and tokens, so that actors can join over a network"),
        _certs,
    )
    add_evaluate(commands.add_parser("evaluate", help="measure a run's policy over whole episodes, without training"))
    add_tournament(
        commands.add_parser("tournament", help="play checkpoints and models against each other, with ratings")
    )
    add_trainer(commands.add_parser("trainer", help="train for a learner on another machine"), _trainer)
    add_runs(commands.add_parser("runs", help="list runs with their state, steps and best return"))
    add_backup(commands.add_parser("backup", help="copy a run, while it trains too"))
    add_compare(
        commands.add_parser("compare", help="compare groups of runs over their seeds, with intervals and curves")
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. Call it once, in the main thread, because it configures the process."""
    for number in operator_signal_numbers():  # a signal sent too early must not end the process; see operator_signals
        signal.signal(number, signal.SIG_IGN)
    ending = stop_signal_numbers()
    EarlyEnd(ExitCode.INTERRUPTED).listen()
    # The learner logs in place of gRPC's own log lines. Set this before gRPC is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    prepare_streams()
    try:
        return _run(arguments)
    except BrokenPipeError:  # the reader of the output has closed it, as in `... | head`
        return ExitCode.OK
    except Exception:
        if report_old_package():
            return ExitCode.SHADOWED
        raise
    finally:
        for stream in (sys.stdout, sys.stderr):
            _flush_or_forget(stream)
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _flush_or_forget(stream: TextIO) -> None:
    """Writes buffered output; discards it if the reader is gone or the disk is full, to keep the exit code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    try:
        parser = build_parser()
        parsed = parser.parse_args(arguments)
        parsed.arguments = sys.argv[1:] if arguments is None else list(arguments)
        if parsed.version:
            with _written_out():
                return _version()
        if parsed.command is None:
            parser.print_help()
            return ExitCode.USAGE
        run: Callable[[argparse.Namespace], int] = parsed.run
        if parsed.command == "serve":  # a lost console does not stop training; the log is in the run folder
            return run(parsed)
        with _written_out():
            return run(parsed)
    except UserError as error:
        if error.exit_code is ExitCode.MISSING_EXTRA and report_old_package():  # too old to have the module
            return ExitCode.SHADOWED
        with suppress(OSError):  # the reader may be gone; the exit code reports the error too
            for line in error.details:
                print(f"  {printable(line, len(line))}", file=sys.stderr)
            print(f"error: {printable(error.message, len(error.message))}", file=sys.stderr)
        return error.exit_code


def _add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_file", nargs="?", type=Path, metavar="RUN.yaml", help="the run file")
    parser.add_argument("--run-id", metavar="ID", help="name of the run and of its folder in --results-dir")
    parser.add_argument("--results-dir", metavar="DIR", help="folder of all runs (default: results)")
    parser.add_argument(
        "--resume", nargs="?", const="true", metavar="auto", type=_resume_word,
        help="resume the run; auto: if it exists",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint", metavar="WHICH",
        help="checkpoint that --resume loads: last (default), best, a step, or a .pt file",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_const", const="true", help="start over although the folder holds a run"
    )
    parser.add_argument("--initialize-from", metavar="ID", help="start from the weights of another run")
    parser.add_argument("--seed", metavar="N", help="seed of networks, minibatches, actors and environments")
    parser.add_argument("--torch-device", metavar="DEVICE", help="cpu, cuda, cuda:1 (default: cuda if available)")
    parser.add_argument("--trainers", metavar="N", help="processes that train together (default: 1)")
    parser.add_argument(
        "--trainer-address",
        metavar="HOST:PORT",
        help="wait here for trainers on other machines (rollcast-learner trainer)",
    )
    parser.add_argument(
        "--deterministic", action="store_const", const="true", help="actors take the most likely action"
    )
    add_address(parser, "127.0.0.1:50051")
    parser.add_argument("--certs", metavar="DIR", help="folder of `certs init`: TLS, and tokens for all clients")
    parser.add_argument("--tls-cert", metavar="FILE", help="the learner's certificate, in place of that of --certs")
    parser.add_argument("--tls-key", metavar="FILE", help="private key of --tls-cert")
    parser.add_argument("--tls-ca", metavar="FILE", help="authority of --tls-cert, for commands on this machine")
    parser.add_argument("--tls-client-ca", metavar="FILE", help="require client certificates of this authority")
    parser.add_argument("--token-file", metavar="FILE", help="hashes of the clients' tokens")
    parser.add_argument("--control-address", metavar="HOST:PORT", help="address for operators' commands; loopback only")
    parser.add_argument(
        "--http-address", metavar="HOST:PORT",
        help="address of status page and metrics (default: 127.0.0.1:9464, or a free port if it is taken)",
    )  # fmt: skip
    parser.add_argument("--target-return", metavar="R", help="stop once the mean return reaches R")
    parser.add_argument("--target-rating", metavar="R", help="stop once the ELO of a behavior with self-play reaches R")
    parser.add_argument("--max-wall-seconds", metavar="S", help="stop after S seconds")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console, json or mlagents")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="set_items",
        help="set any value of the run file, such as behaviors.CartPole.max_steps=1e5",
    )  # fmt: skip
    add_mlagents_flags(parser)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_settings_arguments(parser)
    parser.add_argument(
        "--restarts", metavar="N", type=_restarts, default=0,
        help="start the learner again, up to N times, if its device fails or memory runs out (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--stopped-code", metavar="CODE", type=int, choices=range(256), default=0,
        help="exit code if a signal ended the run early, for schedulers that take code 0 for the end of the work (default: 0)",
    )  # fmt: skip
    parser.set_defaults(run=_serve)


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default="cartpole", metavar="NAME", help="name of the example (default: cartpole)"
    )
    parser.add_argument("--list", action="store_true", help="list the examples")
    parser.set_defaults(run=_init)


def _init(parsed: argparse.Namespace) -> int:
    with needing_extra("init"):
        from learner.commands.init import examples, write_run_file

    if parsed.list:
        rows = examples()
        width = max(map(len, rows))
        sys.stdout.writelines(f"{name:<{width}}  {text}\n" for name, text in rows.items())
    else:
        path = write_run_file(parsed.name, Path())
        sys.stdout.write(f"wrote {path}; start with: rollcast-learner serve {path}\n")
    return ExitCode.OK


def _add_check_config(parser: argparse.ArgumentParser) -> None:
    _add_settings_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print only the settings, as JSON")
    form.add_argument("--schema", action="store_true", help="print the JSON schema of run files")
    form.add_argument("--explain", action="store_true", help="print the meaning of each value next to it")
    parser.add_argument(
        "--can-start", action="store_true", help="fail if serve would refuse the settings or the run folder"
    )
    parser.set_defaults(run=_check_config)


_IDENTITY: Sequence[tuple[str, str, str]] = (
    ("--tls-ca", "FILE", "authority of the learner's certificate (default: that of the run folder)"),
    ("--tls-cert", "FILE", "certificate of this command"),
    ("--tls-key", "FILE", "private key of --tls-cert"),
    ("--token-file", "FILE", "file with a token (default: the operator's in the run folder)"),
    ("--server-name", "NAME", "name in the learner's certificate, if it is not the dialed one"),
)


def _add_operator_command(parser: argparse.ArgumentParser, function: Callable[[argparse.Namespace], int]) -> None:
    if function is _release:
        parser.add_argument(
            "actor", metavar="ACTOR", help="name of the actor; rollcast-learner status lists those shut out"
        )
        parser.add_argument("--principal", metavar="NAME", help="its principal (default: any)")
    parser.add_argument(
        "which", nargs="?", metavar="RUN", help="folder or id of the run (default: the only running one)"
    )
    if function is not _page:  # it reads the run folder and calls no learner
        parser.add_argument("--control", metavar="HOST:PORT", help="the learner's control address")
        for flag, name, text in _IDENTITY:
            parser.add_argument(flag, metavar=name, help=text)
    parser.add_argument("--run-id", metavar="ID", help="the same as RUN")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="folder of all runs (default: results)")
    if function is _status:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--watch",
            nargs="?",
            const=2.0,
            type=_seconds,
            metavar="SECONDS",
            help="repeat until Ctrl-C (default: every 2 s)",
        )
    parser.set_defaults(run=function)


_NOT_SETTINGS = frozenset(
    {
        "arguments",
        "can_start",
        "command",
        "explain",
        "json",
        "run",
        "restarts",
        "run_file",
        "schema",
        "set_items",
        "stopped_code",
        "version",
    }
)
_RESUME_WORDS = frozenset({"auto", "true", "false"})


def _restarts(text: str) -> int:
    """Parses the number of restarts."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of restarts: 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    """Parses the interval of `--watch`; a mistyped interval must neither flood the learner nor seem to hang."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return seconds


def _resume_word(text: str) -> str:
    """Refuses a run file after --resume, which argparse would take for its value."""
    if text.lower() not in _RESUME_WORDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not auto, true or false; write the run file before --resume, or use --resume=auto"
        )
    return text


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def _written_out() -> Iterator[None]:
    """Reports a full disk behind standard output in one line, because partial output must not pass as complete."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise UserError(
            ExitCode.NOT_SAVED, f"the output cannot be written: {error.strerror}; make room, or write it elsewhere"
        ) from None


def _flags(parsed: argparse.Namespace) -> dict[str, object]:
    return {name: value for name, value in vars(parsed).items() if name not in _NOT_SETTINGS and value is not None}


def _serve(parsed: argparse.Namespace) -> int:
    early_end = EarlyEnd(parsed.stopped_code or ExitCode.INTERRUPTED)
    early_end.listen()
    if parsed.restarts:
        from learner.commands.restarting import supervise

        words = _RESUME_WORDS
        return supervise(parsed.arguments, parsed.restarts, resume_words=words, stopped_code=parsed.stopped_code)
    with needing_extra("serve"):
        from learner.settings.load import load_run_options

        if find_spec("torch") is None:  # loading it takes seconds, and only the process of the trainers needs it
            raise ModuleNotFoundError(name="torch")
    loaded = load_run_options(parsed.run_file, cli=_flags(parsed), set_items=parsed.set_items, environ=dict(os.environ))
    with ExitStack() as stack:
        started = None
        service = loaded.options.rollcast
        has_process = (service.trainer_process or service.has_ranks) and service.trainer_address is None
        if has_process and not loaded.options.checkpoint_settings.inference:
            from learner.commands.trainer_start import StartedTrainers

            # They load torch while this process loads the service.
            started = stack.enter_context(early_end.start(lambda: StartedTrainers(service.trainers)))
        with needing_extra("serve"):
            from learner.app import serve
        return serve(loaded, started=started, stopped_code=parsed.stopped_code, early_end=early_end)


def _trainer(parsed: argparse.Namespace) -> int:
    from learner.commands.remote_trainer import train_for

    with needing_extra("trainer"):
        return train_for(parsed, lambda line: print(f"rollcast-learner trainer: {line}", file=sys.stderr, flush=True))


def _check_config(parsed: argparse.Namespace) -> int:
    with needing_extra("check-config"):
        from learner.commands.init import schema_text
        from learner.commands.preflight import check_start, missing_parts
        from learner.settings.check import check_config
        from learner.settings.load import load_run_options

    if parsed.schema:
        sys.stdout.write(schema_text())
        return ExitCode.OK
    given = {"cli": _flags(parsed), "set_items": parsed.set_items, "environ": dict(os.environ)}
    if parsed.can_start:
        check_start(load_run_options(parsed.run_file, **given))
    shown = {"as_json": parsed.json, "explain": parsed.explain, "missing": missing_parts}
    return check_config(parsed.run_file, output=sys.stdout, errors=sys.stderr, **shown, **given)


def _operator(parsed: argparse.Namespace) -> Operator:
    from rollcast.tls import ClientSecurity

    from learner.commands.operator import Operator

    paths = (parsed.tls_ca, parsed.tls_cert, parsed.tls_key, parsed.token_file)
    ca, cert, key, token = (None if path is None else Path(path) for path in paths)
    given = ClientSecurity(ca, cert, key, token, parsed.server_name)
    return Operator.find(parsed.control, _run_of(parsed), Path(parsed.results_dir), given)


def _run_of(parsed: argparse.Namespace) -> str | None:
    """Returns the run that an operator's command names; None if it names none."""
    run: str | None = parsed.which
    given = [
        name for name in ("--control", "--run-id") if getattr(parsed, name[2:].replace("-", "_"), None) is not None
    ]
    if run is not None and given:
        raise UserError(ExitCode.USAGE, f"{run!r} and {given[0]} both name a learner: give only one")
    return parsed.run_id if run is None else run


def _status(parsed: argparse.Namespace) -> int:
    from learner.commands.operator import WaitsForTrainersError
    from learner.commands.status_text import render_status, status_document, watch

    try:
        found = _operator(parsed)
    except WaitsForTrainersError as waits:
        if parsed.json:  # there is no status yet
            raise
        print(waits.message)
        return ExitCode.OK
    with found as operator:

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

    print(page_link(_run_of(parsed), Path(parsed.results_dir)))
    return ExitCode.OK


def _pause(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        operator.pause()
    print("paused")
    return ExitCode.OK


def _resume(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        operator.resume()
    print("resumed")
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


def _release(parsed: argparse.Namespace) -> int:
    with _operator(parsed) as operator:
        released = operator.release(parsed.actor, parsed.principal)
    print(f"released {released} actor{'s' if released != 1 else ''}")
    return ExitCode.OK


def _healthcheck(parsed: argparse.Namespace) -> int:
    from learner.commands.operator import WaitsForTrainersError

    try:
        found = _operator(parsed)
    except WaitsForTrainersError as waits:  # killed for it, it could never wait as long as its trainers need
        print(waits.message)
        return ExitCode.OK
    with found as operator:
        serving = operator.accepts_actors()
    print("serving" if serving else "not serving")
    return ExitCode.OK if serving else ExitCode.UNREACHABLE


def _certs(parsed: argparse.Namespace) -> int:
    with needing_extra("certs", "learner,certs"):
        from learner.commands import certs
    command = {"init": certs.init, "client": certs.client, "renew": certs.renew, "token": certs.token}
    run: Callable[[argparse.Namespace], int] = command[parsed.certs_command]
    return run(parsed)


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
