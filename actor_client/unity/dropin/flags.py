"""The command line of `rollcast-unity`: that of `mlagents-learn`, and what a distributed run needs besides.

Values are passed on as they are: the learner checks them, and knows what wins over what. A flag that is given wins over
the run file even where it says no more than the default, so nothing here has a default.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from actor_client.command_line import StrictParser
from actor_client.unity.dropin.exits import LEARNERS, DropInError, ExitCode

_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "env": ("BUILD", "the Unity player to start; without it, press Play in the editor"),
    "run-id": ("ID", "name of the run: its folder is RESULTS/ID (default: ppo)"),
    "initialize-from": ("ID", "begin with the networks of another run"),
    "seed": ("N", "seed of networks and players, -1 draws one (default: -1)"),
    "base-port": ("N", "port of the first player (default: 5005)"),
    "num-envs": ("N", "players to start (default: 1)"),
    "num-areas": ("N", "training areas in a player (default: 1)"),
    "max-lifetime-restarts": ("N", "restarts of a player, -1 for any number (default: 10)"),
    "restarts-rate-limit-n": ("N", "of them within the period, -1 for any number (default: 1)"),
    "restarts-rate-limit-period-s": ("S", "the period in seconds (default: 60)"),
    "results-dir": ("DIR", "where run folders are (default: results)"),
    "timeout-wait": ("S", "seconds that a player may take to answer (default: 60)"),
    "width": ("N", "width of a player's window in pixels (default: 84)"),
    "height": ("N", "its height (default: 84)"),
    "quality-level": ("N", "Unity's quality level (default: 5)"),
    "time-scale": ("X", "how much faster than real time Unity runs (default: 20)"),
    "target-frame-rate": ("N", "Unity's target frame rate, -1 for the fastest (default: -1)"),
    "capture-frame-rate": ("N", "Unity's capture frame rate (default: 60)"),
    "torch-device": ("DEVICE", "cpu, cuda, cuda:1 (default: cuda if there is one)"),
}
_SWITCHES: Final[Mapping[str, str]] = {
    "resume": "go on with the run",
    "force": "start anew in a folder that holds a run",
    "deterministic": "take the likeliest action",
    "inference": "act without training",
    "no-graphics": "players draw nothing",
    "no-graphics-monitor": "players draw nothing but the first one",
    "debug": "log more",
}
_OF_LEARNER: Final[Mapping[str, tuple[str, str]]] = {
    "address": ("HOST:PORT", "where gateways connect (default: 127.0.0.1:50051, or a free port if it is taken)"),
    "http-address": ("HOST:PORT", "status page and metrics (default: 127.0.0.1:9464, or a free port if it is taken)"),
    "target-return": ("R", "stop once the mean return reaches R"),
    "max-wall-seconds": ("S", "stop after S seconds"),
    "log-format": (
        "FORMAT",
        "mlagents: a line per summary; console: the learner's own lines; json: all lines of a run (default: mlagents)",
    ),
}
_OF_GATEWAY: Final[Mapping[str, tuple[str, str]]] = {
    "listen": ("ADDRESS,...", "where players are awaited (default: 127.0.0.1,::1)"),
    "max-player-message-bytes": ("N", "the largest message of a player (default: 268435456)"),
    "metrics-address": (
        "HOST:PORT",
        "metrics of the players, or off (default: 127.0.0.1:9465, or a free port if it is taken)",
    ),
}
_RESUME_AUTO: Final = "--resume=auto"
_OLD: Final[Mapping[str, str]] = {
    "load": "--load is the old name of --resume, which is taken instead",
    "train": "--train has no effect: a run trains unless it is told otherwise",
    "torch": "--torch has no effect: there is nothing but torch",
    "tensorflow": "--tensorflow has no effect: there is nothing but torch",
}


class Given(NamedTuple):
    """The parsed command line.

    Attributes:
        run_file: The run file, None for none.
        learner: Arguments for the learner, `--env-args` aside.
        gateway: Arguments for the gateway that the run file has no value for.
        env_args: Arguments of the players; None leaves them to the run file.
        notes: What to tell the user.
        has_address: The learner's address was given.
        shows_version: `--version` was given.
    """

    run_file: str | None
    learner: tuple[str, ...]
    gateway: tuple[str, ...]
    env_args: tuple[str, ...] | None
    notes: tuple[str, ...]
    has_address: bool
    shows_version: bool


class _Parser(StrictParser):
    def error(self, message: str) -> NoReturn:
        raise DropInError(ExitCode.USAGE, f"{message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser."""
    codes = "\n".join(f"  {code.value:3d}  {code.help}" for code in ExitCode)
    parser = _Parser(
        prog="rollcast-unity",
        usage="rollcast-unity [RUN.yaml] [--env BUILD] [--run-id ID] [FLAG ...] [--env-args ...]",
        description="Trains Unity players: starts a learner and, on this machine, players or a port for the editor.",
        epilog=f"exit codes:\n{codes}\n{LEARNERS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("run_file", nargs="?", metavar="RUN.yaml", help="the run file; without it, PPO's defaults")
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    known = parser.add_argument_group("as in mlagents-learn")
    for name, (shown, text) in _VALUES.items():
        known.add_argument(f"--{name}", metavar=shown, help=text)
    for name, text in _SWITCHES.items():
        known.add_argument(f"--{name}", action="store_true", help=text)
    # An option of this very name: as a value of --resume, argparse would also take a run file that follows it.
    known.add_argument(
        _RESUME_AUTO, dest="resume_auto", action="store_true", help="go on with the run if it has a checkpoint"
    )
    for name in _OLD:
        known.add_argument(f"--{name}", action="store_true", help=argparse.SUPPRESS)
    known.add_argument("--env-args", nargs=argparse.REMAINDER, metavar="...", help="arguments of the players: the rest")
    own = parser.add_argument_group("of Rollcast")
    for name, (shown, text) in {**_OF_LEARNER, **_OF_GATEWAY}.items():
        own.add_argument(f"--{name}", metavar=shown, help=text)
    own.add_argument("--insecure", action="store_true", help="allow plain text beyond this machine")
    own.add_argument("--set", action="append", metavar="KEY=VALUE", help="set any value of the run file")
    own.add_argument("--side-channel", action="append", metavar="M:C", help="a side channel of yours; may be repeated")
    return parser


def parse(arguments: Sequence[str] | None) -> Given:
    """Reads a command line.

    Raises:
        DropInError: It is wrong (USAGE).
        SystemExit: It asked for help, which has been printed.
    """
    given = vars(build_parser().parse_args(arguments))
    old = [name for name in _OLD if name in given]
    env_args = given.get("env_args")
    return Given(
        run_file=given.get("run_file"),
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
