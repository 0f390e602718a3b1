"""The commands of `rollcast act`, and the flags that all actors have."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

from rollcast.extras import install
from rollcast.parsers import add_old_spelling

from actor_client.exits import ActorError, ExitCode


class Command(NamedTuple):
    """A command `rollcast act NAME`. An entry point of the group `rollcast.actors` names it.

    Attributes:
        help: Its purpose in one line.
        description: The text above its flags.
        add_flags: Adds its flags, whose values stay text.
        run: `module:function`, imported when the command runs. The function gets the given values by name, and returns the
            exit code; see `actor_client.running.run_actor`.
        extras: Extras of Rollcast to install if a module is missing.
        epilog: The text below its flags.
    """

    help: str
    description: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: str
    extras: str = "actor"
    epilog: str = ""


FAILURES_HELP = "end the actor after N failures in a row; 100 steps of each environment cancel one failure (default: 3)"


def add_stepping(parser: argparse.ArgumentParser, failures_help: str = FAILURES_HELP) -> None:
    """Adds the limits of every command that calls environments in its own process."""
    parser.add_argument("--max-env-failures", metavar="N", help=failures_help)
    parser.add_argument(
        "--step-timeout",
        metavar="S",
        help="end the actor if a step(), reset() or close() of an environment takes longer than S seconds (default: no limit)",
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Adds the demonstration flags of every command that acts."""
    parser.add_argument("--record", metavar="FILE.demo", help="record the episodes as demonstrations, in a new file")
    parser.add_argument(
        "--record-episodes", metavar="N", help="stop once N episodes are recorded (default: record until stopped)"
    )


def add_opponent(parser: argparse.ArgumentParser) -> None:
    """Adds the flag for a scripted opponent."""
    parser.add_argument(
        "--opponent",
        metavar="MODULE:CALLABLE",
        help="callable that plays all opponents of this actor in self-play, instead of earlier policies",
    )


def add_learner(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the connection to the learner."""
    parser.add_argument("--learner", metavar="HOST:PORT", help="address of the learner (default: 127.0.0.1:50051)")
    parser.add_argument("--insecure", action="store_true", help="allow plain text to and from other machines")
    parser.add_argument("--certs", metavar="DIR", help="folder of `rollcast join`: TLS, token and --learner")
    parser.add_argument("--tls-ca", metavar="FILE", help="use TLS; authority of the learner's certificate")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate of this actor")
    parser.add_argument("--tls-key", metavar="FILE", help="private key of --tls-cert")
    parser.add_argument("--token-file", metavar="FILE", help="file with this actor's token")
    parser.add_argument(
        "--server-name", metavar="NAME", help="name in the learner's certificate, if it is not that of --learner"
    )
    parser.add_argument("--connect-timeout", metavar="S", help="give up if the learner is not found within S seconds")


def add_log(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the log."""
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console or json")
    parser.add_argument(
        "--log-level", metavar="LEVEL", help="debug (Unity: with the players' output), info, warning or error"
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the learner, the end and the log, which every actor has."""
    add_learner(parser)
    parser.add_argument(
        "--name", metavar="NAME", help="name of this actor in the learner's status (default: generated)"
    )
    parser.add_argument(
        "--outage-bytes",
        metavar="N",
        help="without a connection, continue and keep up to N bytes of experience in memory; only for trainers with replay "
        "memory, as sac (default: 0, wait)",
    )
    parser.add_argument("--max-wall-seconds", metavar="S", help="stop after S seconds")
    add_old_spelling(parser, "--max-seconds", "--max-wall-seconds")
    parser.add_argument(
        "--metrics-address",
        metavar="HOST:PORT",
        help="address to serve metrics on, or off (default: 127.0.0.1:9465, or a free port if it is taken)",
    )
    parser.add_argument(
        "--metrics-token-file",
        metavar="FILE",
        help="file with the token that /metrics requires, for Prometheus' credentials_file (default: none required)",
    )
    parser.add_argument(
        "--heartbeat-file", metavar="FILE", help="file to update while the actor steps, or waits for the learner"
    )
    add_log(parser)


def flags_of(parsed: argparse.Namespace) -> dict[str, object]:
    """Returns the flags of a command by name, without those of the program itself."""
    return {name: value for name, value in vars(parsed).items() if name not in {"command", "run", "version"}}


def missing_extra(error: ModuleNotFoundError, extras: str) -> ActorError:
    """Returns the error for a module that a command needs, with the command line that installs it."""
    return ActorError(ExitCode.MISSING_EXTRA, f"this command needs the module {error.name!r}; {install(extras)}")
