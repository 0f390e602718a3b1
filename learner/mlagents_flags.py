"""The flags of ``mlagents-learn`` that set a value of the run file, for a command line of the learner.

Each goes by its name to :data:`learner.settings.flags.FLAGS`; one that is not given leaves the run file's value alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_VALUES: Sequence[tuple[str, str, str]] = (
    ("env", "BUILD", "the Unity player that gateways start; without it they wait for the editor"),
    ("base-port", "N", "port of a gateway's first player (default: 5005)"),
    ("num-envs", "N", "players of a gateway (default: 1)"),
    ("num-areas", "N", "training areas in a player (default: 1)"),
    ("timeout-wait", "S", "seconds that a player may take to answer (default: 60)"),
    ("max-lifetime-restarts", "N", "restarts of a player, -1 for any number (default: 10)"),
    ("restarts-rate-limit-n", "N", "of them within the period, -1 for any number (default: 1)"),
    ("restarts-rate-limit-period-s", "S", "the period in seconds (default: 60)"),
    ("width", "N", "width of a player's window in pixels (default: 84)"),
    ("height", "N", "its height (default: 84)"),
    ("quality-level", "N", "Unity's quality level (default: 5)"),
    ("time-scale", "X", "how much faster than real time Unity runs (default: 20)"),
    ("target-frame-rate", "N", "Unity's target frame rate, -1 for the fastest (default: -1)"),
    ("capture-frame-rate", "N", "Unity's capture frame rate (default: 60)"),
)
_SWITCHES: Sequence[tuple[str, str]] = (
    ("no-graphics", "players draw nothing"),
    ("no-graphics-monitor", "players draw nothing but the first one"),
    ("inference", "act without training"),
    ("debug", "log more"),
)


def add_mlagents_flags(parser: argparse.ArgumentParser) -> None:
    """Adds those that a learner has no other use for than to tell its gateways and to keep them in the run folder."""
    group = parser.add_argument_group("Unity, as in mlagents-learn")
    for name, shown, text in _VALUES:
        group.add_argument(f"--{name}", metavar=shown, help=text)
    for name, text in _SWITCHES:
        group.add_argument(f"--{name}", action="store_const", const="true", help=text)
    group.add_argument(
        "--env-args", nargs=argparse.REMAINDER, metavar="...", help="arguments of the player: all that follows"
    )
