"""Starts `rollcast act unity`: opens the ports first, and then imports everything else.

A player calls once, at its start, and plays untrained if nothing listens. With early ports, an editor or a build can be
started at the same time as the actor. gRPC is the only large package that is loaded first.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from rollcast.files import overwrite
from rollcast.proxies import spare_loopback

from actor_client.command_line import missing_extra
from actor_client.exits import ActorError, ExitCode
from actor_client.platform import stop_signals
from actor_client.settings.addresses import early_ports
from actor_client.unity.server import PlayerListener, listening


def run(flags: Mapping[str, object]) -> int:
    """Serves players until the run is over, the time is over, or a signal comes.

    Args:
        flags: The values of the command line, by setting.

    Returns:
        The exit code. The error that ended the actor has been written to the file of `--error-file`, or to standard error.

    Raises:
        ActorError: The command line is wrong, a port is in use, or a module is missing.
    """
    spare_loopback(os.environ)  # for the players
    stops: list[str] = []
    try:
        with stop_signals(stops.append):  # until the actor has its own handler: an import cannot be stopped cleanly
            early = early_ports(flags, os.environ)
            if early is None:
                return _continue(flags, None, stops)
            with listening(early) as doors:
                return _continue(flags, doors, stops)
    except ActorError as error:
        if leave_error(flags.get("error_file"), error):
            return error.exit_code
        raise


def leave_error(file: object, error: ActorError) -> bool:
    """Writes the error that ended the actor to the file of `--error-file`, if there is one; returns whether the file says it all.

    Args:
        file: The file's path; None writes nothing.
        error: The error that ended the actor.
    """
    try:
        if file is not None and error.exit_code is not ExitCode.OK:
            overwrite(Path(str(file)), error.message.encode("utf-8", "replace"))
            return not error.traceback
    except OSError:  # standard error gets it
        pass
    return False


def _continue(flags: Mapping[str, object], doors: Sequence[PlayerListener] | None, stops: Sequence[str]) -> int:
    """Imports the rest, checks all settings, and serves players.

    Args:
        flags: The values of the command line, by setting.
        doors: The open ports; None if only the settings determine the ports.
        stops: Receives the name of a signal that arrives in the meantime.

    Raises:
        ActorError: The command line is wrong, a port is in use, or a module is missing.
    """
    try:
        from actor_client.settings.commands import UnitySettings  # noqa: PLC0415
        from actor_client.settings.loading import load  # noqa: PLC0415 - see above

        settings = load(UnitySettings, flags)  # before slow steps, so that errors in the settings show at once
        from actor_client.running import run_actor  # noqa: PLC0415
        from actor_client.unity.app import UnityAdapter  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "actor,unity") from None
    on_error = partial(leave_error, settings.error_file)
    with nullcontext(doors) if doors is not None else listening(settings.ports) as open_doors:
        return run_actor(partial(UnityAdapter, doors=open_doors, stops=stops), settings, on_error)
