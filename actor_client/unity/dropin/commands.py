"""The plan of a run, as the learner reads the run file, and the command lines of the processes to start."""

import json
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

LEARNER_MODULE = "learner"
_CHECK_SECONDS = 120.0
GATEWAY_NAME = "local"
"""The local gateway's name in the run: the same at each start, and with it its place and its seeds."""
PLAYER_LOGS = "run_logs"
QUIET_SECONDS: Final = 30
"""The gateway starts before its learner, which is there a few seconds later: until then that is no news."""


class Plan(NamedTuple):
    """The resolved settings that decide what is started.

    Attributes:
        run_id: Name of the run.
        folder: Of the run.
        env_path: The player; None for the editor.
        env_args: Its arguments.
        base_port: Of the first player.
        num_envs: How many players.
        timeout_wait: Seconds that one may take to answer.
        max_lifetime_restarts: Of a player, -1 for any number.
        restarts_rate_limit_n: Of them within the period, -1 for any number.
        restarts_rate_limit_period_s: The period in seconds.
        no_graphics: Players draw nothing.
        no_graphics_monitor: Players but the first draw nothing.
        debug: Log more.
        address: Listening address of the learner.
        insecure: Plain text beyond this machine is allowed.
        log_format: Of the learner.
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
    insecure: bool
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
            base_port=env["base_port"],
            num_envs=env["num_envs"],
            timeout_wait=env["timeout_wait"],
            max_lifetime_restarts=env["max_lifetime_restarts"],
            restarts_rate_limit_n=env["restarts_rate_limit_n"],
            restarts_rate_limit_period_s=env["restarts_rate_limit_period_s"],
            no_graphics=engine["no_graphics"],
            no_graphics_monitor=engine["no_graphics_monitor"],
            debug=settings["debug"],
            address=service["address"],
            insecure=service["insecure"],
            log_format=service["log_format"],
        )


def make_plan(given: Given) -> Plan:
    """Asks the learner what the run file and the flags come to, and whether a run could start with them.

    Raises:
        DropInError: It could not; the learner has said why, and the code is its own.
    """
    command = [*learner_command("check-config", given), "--json", "--can-start", *env_args(given)]
    checked = subprocess.run(  # noqa: S603 - this interpreter, and the user's own flags
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_CHECK_SECONDS
    )
    if checked.returncode != 0:
        sys.stderr.write(checked.stderr)
        raise DropInError(checked.returncode if checked.returncode > 0 else ExitCode.LEARNER_KILLED)
    return Plan.of(json.loads(checked.stdout))


def learner_command(command: str, given: Given) -> list[str]:
    """Returns a command of the learner with the run file and the flags that are its own."""
    run_file = [] if given.run_file is None else [given.run_file]
    return [sys.executable, "-m", LEARNER_MODULE, command, *run_file, *given.learner]


def env_args(given: Given) -> list[str]:
    """Returns the players' arguments as the end of a command line; nothing where they are left to the run file."""
    return [] if given.env_args is None else ["--env-args", *given.env_args]


def learner(given: Given, plan: Plan, address: LearnerAddress) -> list[str]:
    """Returns the command of the learner."""
    rest = [] if plan.log_format != "auto" else ["--log-format=mlagents"]
    return [*learner_command("serve", given), f"--address={address.listen}", *rest, *env_args(given)]


def gateway(given: Given, plan: Plan, address: LearnerAddress, error_file: Path) -> list[str]:
    """Returns the command of the gateway: it is told all that the run file says, so that it need not wait to hear it.

    Args:
        given: The command line.
        plan: What the run file and the flags come to.
        address: Where the learner will be.
        error_file: Where it leaves what ended it.
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


def _gateway_options(plan: Plan, address: LearnerAddress) -> Iterator[str]:
    yield f"--learner={address.local}"
    yield f"--name={GATEWAY_NAME}"
    yield f"--quiet-seconds={QUIET_SECONDS}"
    if address.is_shared:
        yield "--insecure"
    if plan.env_path is not None:  # the editor is on a port of its own, and is its own log
        yield f"--env={plan.env_path}"
        yield f"--base-port={plan.base_port}"
        yield f"--num-envs={plan.num_envs}"
        yield f"--timeout-wait={plan.timeout_wait}"
        yield f"--max-lifetime-restarts={plan.max_lifetime_restarts}"
        yield f"--restarts-rate-limit-n={plan.restarts_rate_limit_n}"
        yield f"--restarts-rate-limit-period-s={plan.restarts_rate_limit_period_s}"
        yield f"--log-dir={plan.folder / PLAYER_LOGS}"
        if plan.no_graphics:
            yield "--no-graphics"
        if plan.no_graphics_monitor:
            yield "--no-graphics-monitor"
    if plan.log_format == "json":
        yield "--log-format=json"
    if plan.debug:
        yield "--log-level=debug"


def another_machine(plan: Plan, address: LearnerAddress) -> str:
    """Returns how a gateway elsewhere joins the run, as a line for people."""
    if not address.is_shared:
        return "more machines can join a run that is started with --address 0.0.0.0:50051 --insecure"
    build = "BUILD" if plan.env_path is None else shlex.quote(plan.env_path)
    return (
        "more machines join with: rollcast-actor unity "
        f"--env {build} --num-envs {plan.num_envs} --learner {socket.gethostname()}:{address.port} --insecure"
    )
