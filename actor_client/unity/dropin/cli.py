"""The command `rollcast unity`."""

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from rollcast.console import print_versions, report_old_package
from rollcast.extras import install
from rollcast.streams import prepare_streams
from rollcast.text import MAX_ERROR_CHARS, printable

from actor_client.builds.executables import find_build
from actor_client.exits import ActorError
from actor_client.platform import plain_interrupts
from actor_client.settings.addresses import EDITOR_PORT, early_ports
from actor_client.unity.dropin import commands
from actor_client.unity.dropin.addresses import USUAL_ADDRESS, LearnerAddress, reserved_address
from actor_client.unity.dropin.commands import LEARNER_MODULE, StartPlan, make_plan
from actor_client.unity.dropin.exits import STOPPED_EARLY, DropInError, ExitCode, of_gateway
from actor_client.unity.dropin.flags import PROG, Given, parse
from actor_client.unity.dropin.processes import Hooks, RunProcesses, StopSignals, answers
from actor_client.unity.players.launch import UNITY
from actor_client.unity.ports import require_free

_NEEDED = (LEARNER_MODULE, "yaml", "torch", "onnx", "onnxruntime")
_STOPPING = (
    "stopping: players end, then the learner saves; a second signal (Ctrl-C) skips waiting for actors, a third "
    "ends everything at once"
)
_FAILED = "the gateway of the players has failed: the learner saves and ends, and the last line says why"


class Console:
    """Prints lines for the user.

    Attributes:
        as_json: Print one JSON object a line. Errors in the command line or the run file are printed before this is
            known.
    """

    def __init__(self) -> None:
        self.as_json = False

    def info(self, event: str, text: str) -> None:
        """Prints an event.

        Args:
            event: The event's name in JSON.
            text: The event as text.
        """
        self._say(f"[INFO] {text}", {"text": text, "event": event, "level": "info"})

    def warning(self, event: str, text: str) -> None:
        """Prints a warning; arguments as for `info`."""
        self._say(f"[WARNING] {text}", {"text": text, "event": event, "level": "warning"})

    def error(self, text: str, exit_code: int) -> None:
        """Prints the error that ends the command, with its exit code."""
        self._say(
            f"error: {text}", {"error": text, "exit_code": int(exit_code), "event": "run_ended", "level": "error"}
        )

    def _say(self, line: str, content: dict[str, object]) -> None:
        if self.as_json:
            line = json.dumps(content | {"timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z")})
        else:
            line = printable(line, MAX_ERROR_CHARS)
        with suppress(OSError):  # the reader has gone; the exit code reports the error too
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Runs the command and returns its exit code.

    Args:
        arguments: The command line; None for that of the process.
        prog: The name by which the user called the program.
    """
    prepare_streams()
    console = Console()
    try:
        with plain_interrupts():
            return _run(parse(arguments, prog), console)
    except DropInError as error:
        if error.message:
            console.error(error.message, error.exit_code)
        return error.exit_code
    except Exception:
        if report_old_package():
            return ExitCode.SHADOWED
        raise


def _run(given: Given, console: Console) -> int:
    if given.shows_version:
        print_versions()
        return ExitCode.OK
    _require_extras()
    console.as_json = "--log-format=json" in given.learner
    for note in given.notes:
        console.warning("old_flag", note)
    signals = StopSignals()
    with signals.counted():
        _require_build(given.env)  # before the settings are resolved, which takes longer
        plan = _plan(given, signals)
        console.as_json = plan.log_format == "json"
        _require_build(plan.env_path)
        _require_ports(given, plan)
        commands.require_identity(given, plan)
        may_move = not given.has_address and plan.address == USUAL_ADDRESS
        with (
            reserved_address(plan.address, may_move=may_move) as address,
            tempfile.TemporaryDirectory(prefix="rollcast-unity-", ignore_cleanup_errors=True) as folder,
        ):
            error_file = Path(folder, "error")
            return RunProcesses(
                commands.gateway(given, plan, address, error_file),
                commands.learner(given, plan, address),
                EDITOR_PORT if plan.env_path is None else plan.base_port,
                signals,
                Hooks(
                    is_serving=lambda: answers(address.local),
                    say_serving=lambda: _say_serving(console, plan, address),
                    say_stopping=lambda: console.info("stopping", _STOPPING),
                    say_failed=lambda: console.info("gateway_failed", _FAILED),
                    gateway_error=lambda: _read(error_file),
                ),
            ).run()


def _plan(given: Given, signals: StopSignals) -> StartPlan:
    """Returns the plan of what to start.

    Raises:
        DropInError: Nothing can be started, or the user interrupted (INTERRUPTED).
    """
    try:
        plan = make_plan(given)
    except DropInError:
        if not signals.count:  # a Ctrl+C also reaches the child that computes the plan
            raise
    if signals.count:
        raise DropInError(ExitCode.INTERRUPTED, STOPPED_EARLY)
    return plan


def _say_serving(console: Console, plan: StartPlan, address: LearnerAddress) -> None:
    console.info("run_started", f"run {plan.run_id} in {plan.folder}: the learner is at {address.listen}")
    if not address.is_usual:
        console.info("port_moved", f"{plan.address} is taken, so another port was chosen")
    console.info("more_machines", commands.another_machine(plan, address))


def _read(path: Path) -> str:
    """Returns the content of a file; an empty text if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _require_extras() -> None:
    """Checks, without importing anything, that the learner and the actor are installed.

    Raises:
        DropInError: One is not installed (MISSING_EXTRA).
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DropInError(
            ExitCode.MISSING_EXTRA,
            f"rollcast unity needs {', '.join(missing)}: {install('learner,actor,unity')}",
        )


def _require_build(env_path: str | None) -> None:
    """Checks that the players' executable exists and can be started here, before anything is started.

    Args:
        env_path: Its path; None for the editor.

    Raises:
        DropInError: It cannot (UNKNOWN_ENVIRONMENT).
    """
    if env_path is not None:
        with _as_own():
            find_build(env_path, UNITY)


def _require_ports(given: Given, plan: StartPlan) -> None:
    """Checks that the players' ports are free, before anything is started.

    Raises:
        DropInError: A port is taken (PORT_IN_USE).
    """
    with _as_own():
        ports = early_ports(commands.port_flags(given, plan), os.environ)
        if ports is not None:  # else the gateway says what is wrong with its settings
            require_free(ports)


@contextmanager
def _as_own() -> Iterator[None]:
    """Raises the errors of the actor's functions as those of this command."""
    try:
        yield
    except ActorError as error:
        raise DropInError(of_gateway(error.exit_code), error.message) from None
