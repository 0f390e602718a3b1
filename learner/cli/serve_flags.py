"""The flags of ``serve`` and ``check-config``, of which ``train`` has those of a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learner.cli.run_flags import add_address

RESUME_WORDS = frozenset({"auto", "true", "false"})
_VALUES: Sequence[tuple[str, str, str]] = (
    ("env", "BUILD", "Unity player that gateways start; without it they wait for the editor"),
    ("base-port", "N", "port of a gateway's first player (default: 5005)"),
    ("num-envs", "N", "players that each gateway starts (default: 1)"),
    ("num-areas", "N", "training areas in each player (default: 1)"),
    ("timeout-wait", "S", "seconds to wait for an answer of a player (default: 60)"),
    ("max-lifetime-restarts", "N", "limit of restarts of a player; -1 for no limit (default: 10)"),
    ("restarts-rate-limit-n", "N", "limit of restarts of a player within the period; -1 for no limit (default: 1)"),
    ("restarts-rate-limit-period-s", "S", "length of the period in seconds (default: 60)"),
    ("width", "N", "width of a player's window in pixels (default: 84)"),
    ("height", "N", "height of a player's window in pixels (default: 84)"),
    ("quality-level", "N", "Unity's quality level (default: 5)"),
    ("time-scale", "X", "speed of game time relative to real time (default: 20)"),
    ("target-frame-rate", "N", "Unity's target frame rate, -1 for the fastest (default: -1)"),
    ("capture-frame-rate", "N", "Unity's capture frame rate (default: 60)"),
)
_SWITCHES: Sequence[tuple[str, str]] = (
    ("no-graphics", "start players without graphics"),
    ("no-graphics-monitor", "start all players but the first without graphics"),
    ("inference", "act without training"),
    ("debug", "log more"),
)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds every setting that ``serve`` has as a flag."""
    add_run_settings(parser)
    parser.add_argument("--trainers", metavar="N", help="processes that train together (default: 1)")
    parser.add_argument(
        "--trainer-address",
        metavar="HOST:PORT",
        help="wait here for trainers on other machines (rollcast trainer)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the learner's certificate, in place of that of --certs")
    parser.add_argument("--tls-key", metavar="FILE", help="private key of --tls-cert")
    parser.add_argument("--tls-ca", metavar="FILE", help="authority of --tls-cert, for commands on this machine")
    parser.add_argument("--tls-client-ca", metavar="FILE", help="require client certificates of this authority")
    parser.add_argument("--token-file", metavar="FILE", help="hashes of the clients' tokens")
    parser.add_argument("--target-rating", metavar="R", help="stop once the ELO of a behavior with self-play reaches R")
    add_unity_flags(parser)


def add_run_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the run file, the run, where it trains and listens, and when it stops."""
    parser.add_argument("run_file", nargs="?", type=Path, metavar="RUN.yaml", help="the run file")
    parser.add_argument("--run-id", metavar="ID", help="name of the run and of its folder in --results-dir")
    parser.add_argument("--results-dir", metavar="DIR", help="folder of all runs (default: results)")
    parser.add_argument(
        "--resume", nargs="?", const="true", metavar="auto", type=_resume_word,
        help="resume the run; auto: if it exists",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint", metavar="WHICH",
        help="checkpoint that --resume loads: last (default), best, a step, or a .pt file",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_const", const="true", help="start over although the folder holds a run"
    )
    parser.add_argument("--initialize-from", metavar="ID", help="start from the weights of another run")
    parser.add_argument("--seed", metavar="N", help="seed of networks, minibatches, actors and environments")
    parser.add_argument("--torch-device", metavar="DEVICE", help="cpu, cuda, cuda:1 (default: cuda if available)")
    parser.add_argument(
        "--deterministic", action="store_const", const="true", help="actors take the most likely action"
    )
    add_address(parser, "127.0.0.1:50051")
    parser.add_argument("--certs", metavar="DIR", help="folder of `certs init`: TLS, and tokens for all clients")
    parser.add_argument(
        "--http-address", metavar="HOST:PORT",
        help="address of status page, operators' commands and metrics (default: 127.0.0.1:9464, or a free port if it is taken)",
    )  # fmt: skip
    parser.add_argument("--target-return", metavar="R", help="stop once the mean return reaches R")
    parser.add_argument("--max-wall-seconds", metavar="S", help="stop after S seconds")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console, json or mlagents")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (default: info)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="set_items",
        help="set any value of the run file, such as behaviors.CartPole.max_steps=1e5",
    )  # fmt: skip


def add_clients(parser: argparse.ArgumentParser) -> None:
    """Adds the addresses of a gateway for clients."""
    parser.add_argument(
        "--clients",
        metavar="HOST:PORT",
        help="start a gateway for clients, simulators without a policy: their address with gRPC",
    )
    parser.add_argument(
        "--clients-web", metavar="HOST:PORT", help="the gateway's address with WebSocket and HTTP (default: none)"
    )


def add_stopped_code(parser: argparse.ArgumentParser) -> None:
    """Adds the exit code of a run that a signal ended."""
    parser.add_argument(
        "--stopped-code", metavar="CODE", type=int, choices=range(256), default=0,
        help="exit code if a signal ended the run early, for schedulers that take code 0 for the end of the work (default: 0)",
    )  # fmt: skip


def add_unity_flags(parser: argparse.ArgumentParser, *, are_shown: bool = False) -> None:
    """Adds the flags that a learner only passes to its gateways and saves in the run folder.

    Args:
        parser: Parser of a command.
        are_shown: Whether the help lists them, and not only the flag that does.
    """
    group = parser.add_argument_group("Unity, as in mlagents-learn")
    if not are_shown:
        group.add_argument(
            "--help-unity", nargs=0, action=_UnityHelp, help="list the flags of mlagents-learn, which work here too"
        )

    def shown(text: str) -> str:
        return text if are_shown else argparse.SUPPRESS

    for name, value, text in _VALUES:
        group.add_argument(f"--{name}", metavar=value, help=shown(text))
    for name, text in _SWITCHES:
        group.add_argument(f"--{name}", action="store_const", const="true", help=shown(text))
    group.add_argument(
        "--env-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help=shown("arguments for the player; takes all that follow, so it must be last"),
    )


class _UnityHelp(argparse.Action):
    """Prints the flags for Unity players and ends the command."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del namespace, values, option_string
        unity = argparse.ArgumentParser(prog=parser.prog, usage=f"{parser.prog} RUN.yaml [FLAG ...]", add_help=False)
        add_unity_flags(unity, are_shown=True)
        unity.print_help()
        parser.exit()


def _resume_word(text: str) -> str:
    """Refuses a run file after --resume, which argparse would take for its value."""
    if text.lower() not in RESUME_WORDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not auto, true or false; write the run file before --resume, or use --resume=auto"
        )
    return text
