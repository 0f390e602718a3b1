"""The command lines of the two children, and of a gateway on another machine."""

import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from actor_client.unity.dropin.addresses import LearnerAddress
from actor_client.unity.dropin.flags import Given
from actor_client.unity.dropin.plan import Plan, env_args, learner_command

GATEWAY_NAME = "local"
"""The local gateway's name in the run: the same at each start, and with it its place and its seeds."""
PLAYER_LOGS = "run_logs"
QUIET_SECONDS: Final = 30
"""The gateway starts before its learner, which is there a few seconds later: until then that is no news."""


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
