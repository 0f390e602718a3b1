"""The plan of a run, as the learner resolves the run file, and the command lines of the processes to start."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from actor_client.unity.dropin.addresses import LearnerAddress
from actor_client.unity.dropin.exits import DropInError, ExitCode
from actor_client.unity.dropin.flags import Given
from actor_client.unity.players.launch import flags_of

LEARNER_MODULE = "learner"
_OF_IDENTITIES: Final = frozenset({"ROLLCAST_ACTOR_CERTS", "ROLLCAST_ACTOR_TLS_CA"})
"""Variables that give a gateway an identity."""
_OF_PLAYERS: Final = (
    *("base_port", "num_envs", "timeout_wait"),
    *("max_lifetime_restarts", "restarts_rate_limit_n", "restarts_rate_limit_period_s"),
)
"""Settings of the run file that are flags of the gateway."""
_CHECK_SECONDS = 120.0
GATEWAY_NAME = "local"
"""The local gateway's name in the run. It is the same at each start, so the gateway keeps its index and its seeds."""
PLAYER_LOGS = "run_logs"
QUIET_SECONDS: Final = 30
"""Seconds in which the gateway does not report a missing learner, which starts seconds after the gateway."""


class StartPlan(NamedTuple):
    """The resolved settings that decide what is started.

    Attributes:
        run_id: Name of the run.
        folder: The folder of the run.
        env_path: The path of the player; None for the editor.
        env_args: The player's arguments.
        base_port: The port of the first player.
        num_envs: The number of players.
        timeout_wait: Seconds a player may take to answer.
        max_lifetime_restarts: Restarts of a player; -1 for no limit.
        restarts_rate_limit_n: Restarts within the period; -1 for no limit.
        restarts_rate_limit_period_s: The period in seconds.
        no_graphics: Players draw nothing.
        no_graphics_monitor: All players but the first draw nothing.
        debug: Log more.
        address: Listening address of the learner.
        has_tls: The learner has a certificate.
        log_format: The learner's log format.
    """

    run_id: str
    folder: Path
    env_path: str | None
    env_args: tuple[str, ...]
    base_port: int
    num_envs: int
    timeout_wait: float
    max_lifetime_restarts: int
    restarts_rate_limit_n: int
    restarts_rate_limit_period_s: float
    no_graphics: bool
    no_graphics_monitor: bool
    debug: bool
    address: str
    has_tls: bool
    log_format: str

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Reads the document that `check-config --json` prints."""
        env, engine = settings["env_settings"], settings["engine_settings"]
        checkpoints, service = settings["checkpoint_settings"], settings["rollcast"]
        return cls(
            run_id=checkpoints["run_id"],
            folder=Path(checkpoints["results_dir"]) / checkpoints["run_id"],
            env_path=env["env_path"],
            env_args=tuple(env["env_args"] or ()),
            **{name: env[name] for name in _OF_PLAYERS},
            no_graphics=engine["no_graphics"],
            no_graphics_monitor=engine["no_graphics_monitor"],
            debug=settings["debug"],
            address=service["address"],
            has_tls=service["certs"] is not None or service["tls_cert"] is not None,
            log_format=service["log_format"],
        )


def make_plan(given: Given) -> StartPlan:
    """Asks the learner to resolve the run file and the flags, and to check that a run can start with them.

    Raises:
        DropInError: A run cannot start; the learner has printed the reason, and the exit code is the learner's.
    """
    command = [*learner_command("check-config", given), "--json", "--can-start", *env_args(given)]
    try:
        checked = subprocess.run(  # noqa: S603 - this interpreter, and the user's own flags
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_CHECK_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise DropInError(
            ExitCode.LEARNER_KILLED,
            f"the check of the settings took longer than {_CHECK_SECONDS:g} s and was ended; see that the disks of the run "
            "file and of the results answer",
        ) from None
    if checked.returncode != 0:
        sys.stderr.write(checked.stderr)
        raise DropInError(checked.returncode if checked.returncode > 0 else ExitCode.LEARNER_KILLED)
    return StartPlan.of(json.loads(checked.stdout))


def require_identity(given: Given, plan: StartPlan) -> None:
    """Checks that the gateway of a learner with TLS has an identity, before anything is started.

    Raises:
        DropInError: It has none.
    """
    has_flag = any(word.startswith("--certs=") for word in given.gateway)
    if plan.has_tls and not has_flag and os.environ.keys().isdisjoint(_OF_IDENTITIES):
        raise DropInError(
            ExitCode.USAGE,
            "the run uses TLS, so the players of this machine need an identity too: run rollcast join DIR with the join code that "
            "rollcast certs init printed, and give --actor-certs DIR",
        )


def learner_command(command: str, given: Given) -> list[str]:
    """Returns a learner command with the run file and the learner's flags."""
    run_file = [] if given.run_file is None else [given.run_file]
    return [sys.executable, "-m", LEARNER_MODULE, command, *run_file, *given.learner]


def env_args(given: Given) -> list[str]:
    """Returns the players' arguments as the end of a command line; nothing if the run file gives them."""
    return [] if given.env_args is None else ["--env-args", *given.env_args]


def learner(given: Given, plan: StartPlan, address: LearnerAddress) -> list[str]:
    """Returns the command of the learner."""
    rest = [] if plan.log_format != "auto" else ["--log-format=mlagents"]
    added = [] if given.has_address else ["--address"]
    added += ["--log-format"] if rest else []
    own = [f"--address={address.listen}", *rest, f"--drop-in={','.join(added)}"]
    return [*learner_command("serve", given), *own, *env_args(given)]


def gateway(given: Given, plan: StartPlan, address: LearnerAddress, error_file: Path) -> list[str]:
    """Returns the command of the gateway, with all the values of the run file so that it need not wait for them.

    Args:
        given: The command line.
        plan: The resolved run file and flags.
        address: The learner's address.
        error_file: The file to which the gateway writes the error that ends it.
    """
    options = list(_gateway_options(plan, address))
    rest = ["--env-args", *plan.env_args] if plan.env_path is not None and plan.env_args else []
    return [
        sys.executable,
        "-m",
        "actor_client",
        "unity",
        *options,
        f"--error-file={error_file}",
        *given.gateway,
        *rest,
    ]


def _gateway_options(plan: StartPlan, address: LearnerAddress) -> Iterator[str]:
    yield f"--learner={address.local}"
    yield f"--name={GATEWAY_NAME}"
    yield f"--quiet-seconds={QUIET_SECONDS}"
    if address.is_shared and not plan.has_tls:
        yield "--insecure"
    if plan.env_path is not None:  # the editor has its own port and its own log
        yield f"--env={plan.env_path}"
        yield from (f"--{name.replace('_', '-')}={getattr(plan, name)}" for name in _OF_PLAYERS)
        yield f"--log-dir={plan.folder / PLAYER_LOGS}"
        if plan.no_graphics:
            yield "--no-graphics"
        if plan.no_graphics_monitor:
            yield "--no-graphics-monitor"
    if plan.log_format == "json":
        yield "--log-format=json"
    if plan.debug:
        yield "--log-level=debug"


def port_flags(given: Given, plan: StartPlan) -> dict[str, object]:
    """Returns what the gateway is told about the ports for players, by setting."""
    words = (word.removeprefix("--").partition("=") for word in given.gateway)
    flags: dict[str, object] = {name.replace("-", "_"): value or "true" for name, _, value in words}
    if plan.env_path is not None:  # the editor has its own port
        flags |= {"env": plan.env_path, "base_port": plan.base_port, "num_envs": plan.num_envs}
    return flags


def another_machine(plan: StartPlan, address: LearnerAddress) -> str:
    """Returns the command for a gateway on another machine, as a line for the user."""
    security = "--certs certs" if plan.has_tls else "--insecure"
    if not address.is_shared:
        rest = "" if plan.has_tls else f" {security}"
        return f"to let other machines join, start the run with --address 0.0.0.0:{address.port}{rest}"
    build = "BUILD" if plan.env_path is None else shlex.quote(plan.env_path)
    flags = ",".join(dict.fromkeys(flags_of(plan.env_args)))
    allowing = f" {shlex.quote(f'--allow-env-args={flags}')}" if flags else ""
    return (
        f"other machines join with: rollcast act unity --env {build} --num-envs {plan.num_envs} --learner "
        f"{socket.gethostname()}:{address.port} {security}{allowing}"
    )
