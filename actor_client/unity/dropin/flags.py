"""The command line of `rollcast unity`: the flags of `mlagents-learn` and those of a distributed run.

Values are passed on unchanged: the learner checks them and resolves their precedence. A flag that is given takes
precedence over the run file even if its value is the default, so no flag here has a default.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from rollcast.console import add_completion
from rollcast.parsers import StrictParser, add_old_spelling

from actor_client.unity.dropin.exits import LEARNERS, DropInError, ExitCode

PROG: Final = "rollcast-unity"
_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "env": ("BUILD", "the Unity player to start; without it, press Play in the editor"),
    "run-id": ("ID", "name of the run and of its folder in --results-dir (default: ppo)"),
    "initialize-from": ("ID", "start from the weights of another run"),
    "seed": ("N", "seed of networks and players; -1 draws a random one (default: -1)"),
    "base-port": ("N", "port of the first player (default: 5005)"),
    "num-envs": ("N", "players to start (default: 1)"),
    "num-areas": ("N", "training areas in each player (default: 1)"),
    "max-lifetime-restarts": ("N", "limit of restarts of a player; -1 for no limit (default: 10)"),
    "restarts-rate-limit-n": ("N", "limit of restarts of a player within the period; -1 for no limit (default: 1)"),
    "restarts-rate-limit-period-s": ("S", "length of the period in seconds (default: 60)"),
    "results-dir": ("DIR", "folder of all runs (default: results)"),
    "timeout-wait": ("S", "seconds to wait for an answer of a player (default: 60)"),
    "width": ("N", "width of a player's window in pixels (default: 84)"),
    "height": ("N", "height of a player's window in pixels (default: 84)"),
    "quality-level": ("N", "Unity's quality level (default: 5)"),
    "time-scale": ("X", "speed of game time relative to real time (default: 20)"),
    "target-frame-rate": ("N", "Unity's target frame rate, -1 for the fastest (default: -1)"),
    "capture-frame-rate": ("N", "Unity's capture frame rate (default: 60)"),
    "torch-device": ("DEVICE", "cpu, cuda, cuda:1 (default: cuda if available)"),
}
_SWITCHES: Final[Mapping[str, str]] = {
    "resume": "resume the run",
    "force": "start over although the folder holds a run",
    "deterministic": "take the most likely action",
    "inference": "act without training",
    "no-graphics": "start players without graphics",
    "no-graphics-monitor": "start all players but the first without graphics",
    "debug": "log more",
}
_OF_LEARNER: Final[Mapping[str, tuple[str, str]]] = {
    "address": (
        "HOST:PORT",
        "address where gateways connect (default: 127.0.0.1:50051, or a free port if it is taken)",
    ),
    "http-address": (
        "HOST:PORT",
        "address of the status page and the metrics (default: 127.0.0.1:9464, or a free port if it is taken)",
    ),
    "certs": (
        "DIR",
        "folder of rollcast certs init: the run uses TLS, and gateways need a token (see --actor-certs)",
    ),
    "target-return": ("R", "stop once the mean return reaches R"),
    "target-rating": ("R", "stop once the ELO of a behavior with self-play reaches R"),
    "max-wall-seconds": ("S", "stop after S seconds"),
    "log-format": (
        "FORMAT",
        "mlagents: a line per summary; console: the learner's own lines; json: all lines of a run (default: mlagents)",
    ),
}
_OF_GATEWAY: Final[Mapping[str, tuple[str, str]]] = {
    "player-address": ("ADDR,...", "addresses where players connect (default: 127.0.0.1,::1)"),
    "opponent": ("MODULE:CALLABLE", "callable that plays all opponents in self-play, instead of earlier policies"),
    "max-player-message-bytes": ("N", "largest message of a player in bytes (default: 268435456)"),
    "metrics-address": (
        "HOST:PORT",
        "address for the players' metrics, or off (default: 127.0.0.1:9465, or a free port if it is taken)",
    ),
}
_RESUME_AUTO: Final = "--resume=auto"
_OLD: Final[Mapping[str, str]] = {
    "load": "--load is the old name of --resume and has the same effect",
    "train": "--train has no effect: a run trains by default",
    "torch": "--torch has no effect: torch is the only framework",
    "tensorflow": "--tensorflow has no effect: torch is the only framework",
}


class Given(NamedTuple):
    """The parsed command line.

    Attributes:
        run_file: The path of the run file; None without one.
        env: The path of the player; None leaves it to the run file.
        learner: Arguments for the learner, without `--env-args`.
        gateway: Arguments for the gateway that have no key in a run file.
        env_args: Arguments of the players; None leaves them to the run file.
        notes: Remarks for the user.
        has_address: The learner's address was given.
        shows_version: `--version` was given.
    """

    run_file: str | None
    env: str | None
    learner: tuple[str, ...]
    gateway: tuple[str, ...]
    env_args: tuple[str, ...] | None
    notes: tuple[str, ...]
    has_address: bool
    shows_version: bool


class _Parser(StrictParser):
    def error(self, message: str) -> NoReturn:
        raise DropInError(ExitCode.USAGE, f"{message}; see {self.prog} --help")


def build_parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Returns the parser.

    Args:
        prog: The name by which the user called the program.
    """
    codes = "\n".join(f"  {code.value:3d}  {code.help}" for code in ExitCode)
    parser = _Parser(
        prog=prog,
        usage=f"{prog} [RUN.yaml] [--env BUILD] [--run-id ID] [FLAG ...] [--env-args ...]",
        description="Trains Unity players: starts a learner, and either players on this machine or a port for the editor.",
        epilog=f"exit codes:\n{codes}\n{LEARNERS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("run_file", nargs="?", metavar="RUN.yaml", help="the run file; without it, PPO's defaults")
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    add_completion(parser)
    known = parser.add_argument_group("as in mlagents-learn")
    for name, (shown, text) in _VALUES.items():
        known.add_argument(f"--{name}", metavar=shown, help=text)
    for name, text in _SWITCHES.items():
        known.add_argument(f"--{name}", action="store_true", help=text)
    # This option must match exactly: as a value of --resume, argparse would also take a run file that follows it.
    known.add_argument(
        _RESUME_AUTO, dest="resume_auto", action="store_true", help="resume the run if it has a checkpoint"
    )
    for name in _OLD:
        known.add_argument(f"--{name}", action="store_true", help=argparse.SUPPRESS)
    known.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="pass all remaining arguments to the players; must be last",
    )
    own = parser.add_argument_group("of Rollcast")
    for name, (shown, text) in {**_OF_LEARNER, **_OF_GATEWAY}.items():
        own.add_argument(f"--{name}", metavar=shown, help=text)
    own.add_argument("--actor-certs", metavar="DIR", help="folder of rollcast join, for the players of this machine")
    own.add_argument("--insecure", action="store_true", help="allow plain text to and from other machines")
    own.add_argument("--set", action="append", metavar="KEY=VALUE", help="set any value of the run file")
    own.add_argument(
        "--side-channel",
        action="append",
        metavar="MODULE:CALLABLE",
        help="callable that creates your own side channel; may be repeated",
    )
    add_old_spelling(parser, "--listen", "--player-address")
    return parser


def parse(arguments: Sequence[str] | None, prog: str = PROG) -> Given:
    """Reads a command line.

    Args:
        arguments: The command line; None for that of the process.
        prog: The name by which the user called the program.

    Raises:
        DropInError: The command line is wrong (USAGE).
        SystemExit: It asks for help, which has been printed.
    """
    given = vars(build_parser(prog).parse_args(arguments))
    old = [name for name in _OLD if name in given]
    env_args = given.get("env_args")
    return Given(
        run_file=given.get("run_file"),
        env=given.get("env"),
        learner=tuple(_for_learner(given)),
        gateway=tuple(_for_gateway(given)),
        env_args=None if env_args is None else tuple(env_args),
        notes=tuple(_OLD[name] for name in old),
        has_address="address" in given,
        shows_version="version" in given,
    )


def _for_learner(given: Mapping[str, object]) -> Iterator[str]:
    yield from _values(given, (*_VALUES, *_OF_LEARNER))
    if "resume" in given or ("load" in given and "resume_auto" not in given):
        yield "--resume=true"
    elif "resume_auto" in given:
        yield _RESUME_AUTO
    for name in (*_SWITCHES, "insecure"):
        if _field(name) in given and name != "resume":
            yield f"--{name}"
    yield from _repeated(given, "set")


def _for_gateway(given: Mapping[str, object]) -> Iterator[str]:
    yield from _values(given, _OF_GATEWAY)
    yield from _repeated(given, "side-channel")
    if "actor_certs" in given:
        yield f"--certs={given['actor_certs']}"
    if "insecure" in given:
        yield "--insecure"


def _values(given: Mapping[str, object], names: Sequence[str] | Mapping[str, object]) -> Iterator[str]:
    for name in names:
        if _field(name) in given:
            yield f"--{name}={given[_field(name)]}"


def _repeated(given: Mapping[str, object], name: str) -> Iterator[str]:
    items = given.get(_field(name), ())
    if isinstance(items, list):
        yield from (f"--{name}={item}" for item in items)


def _field(name: str) -> str:
    return name.replace("-", "_")
