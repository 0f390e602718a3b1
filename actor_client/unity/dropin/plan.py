"""What the run file says of the players, as the learner reads it: asked of a child, for only a learner has YAML."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from actor_client.unity.dropin.exits import DropInError, ExitCode
from actor_client.unity.dropin.flags import Given

LEARNER_MODULE = "learner"
_CHECK_SECONDS = 120.0


class Plan(NamedTuple):
    """What to start, from the resolved settings.

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
        address: Where the learner shall listen.
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
