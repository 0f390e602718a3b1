"""The command `rollcast-unity`."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from actor_client.exits import ActorError
from actor_client.platform import plain_interrupts
from actor_client.unity.dropin import commands
from actor_client.unity.dropin.addresses import USUAL_ADDRESS, reserved_address
from actor_client.unity.dropin.exits import DropInError, ExitCode, of_gateway
from actor_client.unity.dropin.flags import parse
from actor_client.unity.dropin.life import Life, Signals
from actor_client.unity.dropin.plan import LEARNER_MODULE, make_plan
from actor_client.unity.players.launch import find_build
from actor_client.unity.ports import EDITOR_PORT

_NEEDED = (LEARNER_MODULE, "yaml", "torch", "onnx", "onnxruntime")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    for name in ("stdout", "stderr"):  # None where the caller closed them, as in `... >&-`
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    try:
        with plain_interrupts():
            return _run(arguments)
    except DropInError as error:
        if error.message:
            _say("error: ", error.message)
        return error.exit_code


def _run(arguments: Sequence[str] | None) -> int:
    given = parse(arguments)
    if given.shows_version:
        print(f"rollcast {version('rollcast')}, Python {sys.version.split()[0]}")
        return ExitCode.OK
    _require_extras()
    for note in given.notes:
        _say("[WARNING] ", note)
    plan = make_plan(given)
    _require_build(plan.env_path)
    may_move = not given.has_address and plan.address == USUAL_ADDRESS
    with reserved_address(plan.address, may_move=may_move) as address:
        _say("[INFO] ", f"run {plan.run_id} in {plan.folder}: the learner is at {address.listen}")
        if not address.is_usual:
            _say("[INFO] ", f"{plan.address} is taken, so another port was chosen")
        _say("[INFO] ", commands.another_machine(plan, address))
        signals = Signals()
        with signals.counted():
            return Life(
                commands.gateway(given, plan, address),
                commands.learner(given, plan, address),
                EDITOR_PORT if plan.env_path is None else plan.base_port,
                signals,
            ).run()


def _require_extras() -> None:
    """Looks, without importing anything, whether both halves are installed.

    Raises:
        DropInError: They are not (MISSING_EXTRA).
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DropInError(
            ExitCode.MISSING_EXTRA,
            f"rollcast-unity needs {', '.join(missing)}: in the checkout, pip install '.[learner,actor,unity]'",
        )


def _require_build(env_path: str | None) -> None:
    """Looks for the players' executable before anything is started for it.

    Raises:
        DropInError: It is not there (UNKNOWN_ENVIRONMENT).
    """
    try:
        if env_path is not None:
            find_build(env_path)
    except ActorError as error:
        raise DropInError(of_gateway(error.exit_code), error.message) from None


def _say(kind: str, text: str) -> None:
    with suppress(OSError):  # nobody reads it any more; the code says it too
        print(f"{kind}{text}", file=sys.stderr, flush=True)
