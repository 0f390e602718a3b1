"""The commands of the learner.

Heavy modules are imported inside the commands that need them, so that `--help`, `check-config` and the operator's
commands answer at once and work without torch.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeVar

from rollcast.console import COMMANDS, add_completion, print_versions, report_old_package
from rollcast.parsers import StrictParser, subparsers_of
from rollcast.signals import stop_signal_numbers
from rollcast.streams import prepare_streams
from rollcast.text import MAX_ERROR_CHARS, printable

from learner.cli.certs_flags import add_certs
from learner.cli.compare import add_compare
from learner.cli.evaluate import add_evaluate
from learner.cli.run_flags import needing_extra, real
from learner.cli.runs import add_backup, add_runs
from learner.cli.serve_flags import RESUME_WORDS, add_clients, add_settings, add_stopped_code
from learner.cli.sharing import add_pull, add_push
from learner.cli.sweep import add_sweep
from learner.cli.tournament import add_tournament
from learner.cli.train_flags import add_train
from learner.cli.trainer import add_trainer
from learner.shared.exits import ExitCode, UserError
from learner.shared.platform import operator_signal_numbers

if TYPE_CHECKING:
    from learner.cli.operator import Operator
    from learner.shared.settings.load import LoadedRun
    from learner.start.actors import ActorsRequest, TrainingActors
    from learner.start.trainer_hosts import AwaitedTrainers
    from learner.start.trainer_start import StartedTrainers

T = TypeVar("T", bound="StartedTrainers | AwaitedTrainers")
PROG = "rollcast-learner"
_EXIT_CODES = "exit codes:\n" + "\n".join(f"  {code.value:3d}  {code.help}" for code in ExitCode)


class EarlyEnd:
    """Ends this process at once when a signal comes while no run handles it; everything that was to be saved is saved.

    It raises no exception, which could be raised during an import that catches everything, and be lost.

    Args:
        code: Exit code.
    """

    def __init__(self, code: int) -> None:
        self._code = code
        self._trainers: StartedTrainers | AwaitedTrainers | None = None
        self._is_starting = False
        self._is_asked = False

    def listen(self) -> None:
        """Handles signals from now on, except while a run handles them."""
        for number in stop_signal_numbers():
            signal.signal(number, self._on_signal)

    def start(self, make: Callable[[], T]) -> T:
        """Starts trainers, which will leave nothing behind; a signal waits until they can be ended."""
        self._is_starting = True
        try:
            self._trainers = made = make()
        finally:
            self._is_starting = False
            if self._is_asked:
                self._leave()
        return made

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._is_asked = True
        if not self._is_starting:
            self._leave()

    def _leave(self) -> NoReturn:
        trainers, self._trainers = self._trainers, None  # another signal does not wait for them
        if trainers is not None:
            trainers.kill()
            trainers.__exit__(None, None, None)
        os._exit(self._code)


class _Parser(StrictParser):
    """A parser that ends with the learner's own exit code on an invalid command line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(ExitCode.USAGE, f"{message}; see {self.prog} --help")


def build_parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Returns the parser of all commands; the parsed `run` is the function of the chosen command.

    Args:
        prog: The name by which the user called the program.
    """
    parser = _Parser(
        prog=prog,
        description="Trains policies from experience that actors send over gRPC.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    add_completion(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, add in _COMMANDS.items():
        add(commands.add_parser(name, help=COMMANDS[name].help))
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Runs a command and returns its exit code. Call it once, in the main thread, because it configures the process.

    Args:
        arguments: The command line; None for that of the process.
        prog: The name by which the user called the program.
    """
    for number in operator_signal_numbers():  # a signal sent too early must not end the process; see operator_signals
        signal.signal(number, signal.SIG_IGN)
    ending = stop_signal_numbers()
    EarlyEnd(ExitCode.INTERRUPTED).listen()
    # The learner logs in place of gRPC's own log lines. Set this before gRPC is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    prepare_streams()
    try:
        return _run(arguments, prog)
    except BrokenPipeError:  # the reader of the output has closed it, as in `... | head`
        return ExitCode.OK
    except PermissionError as error:  # of a file in a run folder, whichever command looks for it
        if error.filename is None:
            raise
        return _reported(UserError(ExitCode.USAGE, f"{error.filename} cannot be used: {error.strerror}"))
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


def _run(arguments: Sequence[str] | None, prog: str) -> int:
    try:
        parser = build_parser(prog)
        parsed = parser.parse_args(arguments)
        parsed.arguments = sys.argv[1:] if arguments is None else list(arguments)
        parsed.parser = subparsers_of(parser).get(parsed.command)
        if parsed.version:
            with _written_out():
                print_versions()
            return ExitCode.OK
        if parsed.command is None:
            parser.print_help()
            return ExitCode.USAGE
        run: Callable[[argparse.Namespace], int] = parsed.run
        if parsed.command in {
            "serve",
            "sweep",
            "train",
        }:  # a lost console does not stop training; the log is in the run folder
            return run(parsed)
        with _written_out():
            return run(parsed)
    except UserError as error:
        if error.exit_code is ExitCode.MISSING_EXTRA and report_old_package():  # too old to have the module
            return ExitCode.SHADOWED
        return _reported(error)


def _reported(error: UserError) -> int:
    """Prints an error, and returns its exit code."""
    with suppress(OSError):  # the reader may be gone; the exit code reports the error too
        for line in error.details:
            print(f"  {printable(line, len(line))}", file=sys.stderr)
        print(f"error: {printable(error.message, len(error.message))}", file=sys.stderr)
    return error.code


def _say(line: str) -> None:
    """Prints a line that holds text of a file or of a server."""
    print(printable(line, MAX_ERROR_CHARS))


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = _EXIT_CODES, argparse.RawDescriptionHelpFormatter
    add_settings(parser)
    parser.add_argument(
        "--restarts", metavar="N", type=_restarts, default=0,
        help="start the learner again, up to N times, if its device fails or memory runs out (default: 0)",
    )  # fmt: skip
    add_clients(parser)
    add_stopped_code(parser)
    # Given by `rollcast unity`: the flags that it adds to those of the user.
    parser.add_argument("--drop-in", metavar="FLAG,...", help=argparse.SUPPRESS)
    parser.set_defaults(run=_serve)


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default="cartpole", metavar="NAME", help="name of the example (default: cartpole)"
    )
    parser.add_argument("--list", action="store_true", help="list the examples")
    parser.set_defaults(run=_init)


def _init(parsed: argparse.Namespace) -> int:
    with needing_extra("init"):
        from learner.start.init import examples, write_run_file

    if parsed.list:
        rows = examples()
        width = max(map(len, rows))
        sys.stdout.writelines(f"{name:<{width}}  {text}\n" for name, text in rows.items())
    else:
        path = write_run_file(parsed.name, Path())
        sys.stdout.write(f"wrote {path}; start with: rollcast serve {path}\n")
    return ExitCode.OK


def _add_check_config(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)
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
        parser.add_argument("actor", metavar="ACTOR", help="name of the actor; rollcast status lists those shut out")
        parser.add_argument("--principal", metavar="NAME", help="its principal (default: any)")
    parser.add_argument(
        "which", nargs="?", metavar="RUN", help="folder or id of the run (default: the only running one)"
    )
    if function is _set:
        parser.description, parser.formatter_class = _ABOUT_SET, argparse.RawDescriptionHelpFormatter
        parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="a setting and its new value")
        parser.add_argument("--undo", action="store_true", help="undo the last change that is not undone")
    if function is not _page:  # it reads the run folder and calls no learner
        parser.add_argument("--control", metavar="HOST:PORT", help="address of the learner's status page")
        for flag, name, text in _IDENTITY:
            parser.add_argument(flag, metavar=name, help=text)
    parser.add_argument("--run-id", metavar="ID", help=argparse.SUPPRESS)  # the same as RUN
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="folder of all runs (default: results)")
    if function is _status:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--watch",
            nargs="?",
            const=2.0,
            type=real(0.1, 3600, " of seconds"),  # a mistyped interval must neither flood the learner nor seem to hang
            metavar="SECONDS",
            help="repeat until Ctrl-C (default: every 2 s)",
        )
    parser.set_defaults(run=function)


_NOT_SETTINGS = frozenset(
    {
        "arguments",
        "can_start",
        "clients",
        "clients_web",
        "command",
        "drop_in",
        "explain",
        "json",
        "parser",
        "run",
        "restarts",
        "run_file",
        "schema",
        "set_items",
        "stopped_code",
        "version",
    }
)


def _restarts(text: str) -> int:
    """Parses the number of restarts."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of restarts: 0 or more")
    return int(text)


@contextmanager
def _written_out() -> Iterator[None]:
    """Reports a full disk behind standard output in one line, because partial output must not pass as complete."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        from learner.shared.files import NO_ROOM

        if error.errno not in NO_ROOM:
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
        from learner.cli.restarting import supervise

        words = RESUME_WORDS
        return supervise(parsed.arguments, parsed.restarts, resume_words=words, stopped_code=parsed.stopped_code)
    with needing_extra("serve"):
        from learner.shared.settings.load import load_run_options
        from learner.start.clients import gateway_of
        from learner.start.last_start import with_flags

        _require_torch()
    loaded = load_run_options(parsed.run_file, cli=_flags(parsed), set_items=parsed.set_items, environ=dict(os.environ))
    gateway = gateway_of(parsed, loaded)
    loaded = with_flags(loaded, parsed.parser, parsed)
    if gateway is None:
        return _learn(loaded, parsed.stopped_code, early_end)
    return _learn_with(gateway, loaded, parsed.stopped_code, early_end)


def _train(parsed: argparse.Namespace) -> int:
    early_end = EarlyEnd(parsed.stopped_code or ExitCode.INTERRUPTED)
    early_end.listen()
    with needing_extra("train"):
        from learner.start.last_start import with_flags
        from learner.start.train import prepare

        _require_torch()
    loaded, request = prepare(parsed)
    return _learn_with(request, with_flags(loaded, parsed.parser, parsed), parsed.stopped_code, early_end)


def _learn_with(request: ActorsRequest, loaded: LoadedRun, stopped_code: int, early_end: EarlyEnd) -> int:
    """Trains beside actors that this command starts; they end together."""
    from learner.start.actors import TrainingActors

    with TrainingActors(request) as actors:
        code = _learn(loaded, stopped_code, early_end, actors)
    if actors.error is not None:
        raise actors.error
    return code


def _require_torch() -> None:
    """Checks that torch is installed; loading it takes seconds, and only the process of the trainers needs it."""
    if find_spec("torch") is None:
        raise ModuleNotFoundError(name="torch")


def _learn(loaded: LoadedRun, stopped_code: int, early_end: EarlyEnd, actors: TrainingActors | None = None) -> int:
    with ExitStack() as stack:
        started = None
        service = loaded.options.rollcast
        has_process = (service.trainer_process or service.has_ranks) and service.trainer_address is None
        if has_process and not loaded.options.checkpoint_settings.inference:
            from learner.start.trainer_start import StartedTrainers

            # They load torch while this process loads the service.
            started = stack.enter_context(early_end.start(lambda: StartedTrainers(service.trainers)))
        with needing_extra("serve"):
            from learner.shared.observe import logs
            from learner.start.app import serve
        log_file, options = logs.LogFile(), loaded.options
        logs.configure(service.log_format, options.log_level, file=log_file)
        return serve(loaded, started, stopped_code, early_end, actors=actors, log_file=log_file)


def _check_config(parsed: argparse.Namespace) -> int:
    with needing_extra("check-config"):
        from learner.shared.settings.check import check_config
        from learner.shared.settings.load import load_run_options
        from learner.start.init import schema_text
        from learner.start.preflight import check_start, missing_parts

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

    from learner.cli.operator import Operator

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
    from learner.cli.operator import WaitsForTrainersError
    from learner.cli.status import status_document, watch
    from learner.shared.observe.terminal import render_status

    try:
        found = _operator(parsed)
    except WaitsForTrainersError as waits:
        if parsed.json:  # there is no status yet
            raise
        _say(waits.message)
        return ExitCode.OK

    def shown() -> str:
        status = found.status()
        try:
            if parsed.json:
                return status_document(status, indent=2 if parsed.watch is None else None)
            return render_status(status, found.page)
        except (ArithmeticError, ValueError):  # numbers that no learner sends
            raise UserError(
                ExitCode.PROTOCOL_MISMATCH, f"the status at {found.address} has impossible numbers"
            ) from None

    if parsed.watch is None:
        print(shown())
    else:
        watch(shown, parsed.watch, sys.stdout, separator="\n" if parsed.json else "\n\n")
    return ExitCode.OK


def _page(parsed: argparse.Namespace) -> int:
    from learner.cli.operator import page_link

    _say(page_link(_run_of(parsed), Path(parsed.results_dir)))
    return ExitCode.OK


def _pause(parsed: argparse.Namespace) -> int:
    _operator(parsed).pause()
    print("paused")
    return ExitCode.OK


def _resume(parsed: argparse.Namespace) -> int:
    _operator(parsed).resume()
    print("resumed")
    return ExitCode.OK


def _save(parsed: argparse.Namespace) -> int:
    _say(_operator(parsed).save_checkpoint())
    return ExitCode.OK


def _drain(parsed: argparse.Namespace) -> int:
    _operator(parsed).drain(final=True)
    print("the run ends; its actors exit")
    return ExitCode.OK


_ABOUT_SET = """\
Changes settings while a run trains, from its next update on; several at once, all or none:

  learning_rate=1e-4          hyperparameters of schedules and losses, such as beta, epsilon, num_epoch
  CartPole.max_steps=1e6      with the behavior, if the run has several
  target_return=475           null for none
  evaluation.episodes=50      episodes, or games against each opponent
  lesson.length=2             an environment parameter's lesson, by name or number

A change lasts, over restarts and --resume too, until it is undone or the run file sets another value."""


def _set(parsed: argparse.Namespace) -> int:
    if parsed.which is not None and "=" in parsed.which:
        parsed.which, parsed.changes = None, [parsed.which, *parsed.changes]
    values = dict[str, str]()
    for change in parsed.changes:
        name, sign, text = change.partition("=")
        if not sign or not name.strip() or name.strip() in values:
            raise UserError(ExitCode.USAGE, f"{change!r}: must have the form KEY=VALUE, each key once; see --help")
        values[name.strip()] = text.strip()
    if bool(values) == parsed.undo:
        raise UserError(ExitCode.USAGE, "give either KEY=VALUE, such as learning_rate=1e-4, or --undo; see --help")
    operator = _operator(parsed)
    changes = operator.undo() if parsed.undo else operator.set(values)
    for each in changes:
        _say(str(each.get("text")))
    if not changes:
        print("nothing changed: these are the values already")
    return ExitCode.OK


def _release(parsed: argparse.Namespace) -> int:
    released = _operator(parsed).release(parsed.actor, parsed.principal)
    print(f"released {released} actor{'s' if released != 1 else ''}")
    return ExitCode.OK


def _healthcheck(parsed: argparse.Namespace) -> int:
    from learner.cli.operator import WaitsForTrainersError

    try:
        found = _operator(parsed)
    except WaitsForTrainersError as waits:  # killed for it, it could never wait as long as its trainers need
        _say(waits.message)
        return ExitCode.OK
    serving = found.accepts_actors()
    print("serving" if serving else "not serving")
    return ExitCode.OK if serving else ExitCode.UNREACHABLE


def _certs(parsed: argparse.Namespace) -> int:
    with needing_extra("certs", "learner,certs"):
        from learner.cli import certs
    command = {"init": certs.init, "client": certs.client, "renew": certs.renew, "token": certs.token}
    run: Callable[[argparse.Namespace], int] = command[parsed.certs_command]
    return run(parsed)


_COMMANDS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "init": _add_init,
    "train": lambda parser: add_train(parser, _train),
    "sweep": add_sweep,
    "serve": _add_serve,
    "check-config": _add_check_config,
    "status": lambda parser: _add_operator_command(parser, _status),
    "page": lambda parser: _add_operator_command(parser, _page),
    "pause": lambda parser: _add_operator_command(parser, _pause),
    "resume": lambda parser: _add_operator_command(parser, _resume),
    "save": lambda parser: _add_operator_command(parser, _save),
    "set": lambda parser: _add_operator_command(parser, _set),
    "drain": lambda parser: _add_operator_command(parser, _drain),
    "release": lambda parser: _add_operator_command(parser, _release),
    "healthcheck": lambda parser: _add_operator_command(parser, _healthcheck),
    "certs": lambda parser: add_certs(parser, _certs),
    "evaluate": add_evaluate,
    "tournament": add_tournament,
    "trainer": add_trainer,
    "runs": add_runs,
    "backup": add_backup,
    "push": add_push,
    "pull": add_pull,
    "compare": add_compare,
}
