"""Why Unity players take no part in runs in lock-step."""

from actor_client.connection.session import RunInfo
from actor_client.exits import ActorError, ExitCode


def refuse_lockstep(run: RunInfo) -> None:
    """Refuses a run that players could not repeat.

    A round after a checkpoint begins with environments whose seeds follow from it. A player takes a seed with its first
    message and never again: what it draws after a reset depends on all that it drew before.

    Raises:
        ActorError: The run is in lock-step.
    """
    if run.assignment.lockstep_quota_steps:
        raise ActorError(
            ExitCode.REFUSED,
            f"run {run.run_id} is in lock-step (rollcast.lockstep in its run file), and Unity players cannot take part: "
            "they take a seed at their start alone, and could not repeat what they played; remove rollcast.lockstep from "
            "the run file, or train environments of rollcast-actor gym",
        )
