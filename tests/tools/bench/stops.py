"""Assigns the functions of a profile to the stops of a step.

Time in functions of our own files belongs to the file's stop. Time in libraries and in C belongs to the function that called
them; where that is a library too, it is shared out over the callers by the time they spent there, until it arrives.
"""

import pstats
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.bench.processes import REPOSITORY

Function = tuple[str, int, str]
"""File, line and name, as pstats has them."""

WAITING = "waiting"
IMPORTING = "importing modules"
OTHER = "other"

STOPS = (
    ("actor_client/envs", "1 step: environments"),
    ("actor_client/rollout/vector/loop", "1 step: loop"),
    ("actor_client/rollout/vector/environments", "1 step: loop"),
    ("actor_client/rollout/agents/loop", "1 step: loop"),
    ("actor_client/rollout", "2 segment, chunk"),
    ("protos/rollcast", "3 encode, decode"),
    ("actor_client/connection", "4 send"),
    ("actor_client/policy", "13 act"),
    ("learner/ingest", "6 account, queue"),
    ("learner/buffers", "7-8 stage, batch"),
    ("learner/trainers/intake", "7-8 stage, batch"),
    ("learner/trainers/tally", "7-8 stage, batch"),
    ("learner/trainers/actor_critic/targets", "7-8 stage, batch"),
    ("learner/trainers", "9 update"),
    ("learner/networks", "9 update"),
    ("learner/optimizers", "9 update"),
    ("learner/rewards", "9 update"),
    ("learner/publish", "10 publish"),
    ("learner/observe", "observe"),
    ("learner/checkpoints", "checkpoints"),
    ("learner/run/checkpointing", "checkpoints"),
)
_PARTS = ("actor_client/", "learner/", "protos/")
_WAITS = frozenset({"<method 'acquire' of '_thread.lock' objects>", "<method 'acquire' of '_thread.RLock' objects>"})
_IMPORTER = "<frozen importlib"
_MAX_PASSES = 100
_NEGLIGIBLE_SHARE = 1e-4


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of a thread's time.

    Attributes:
        seconds: Of the whole profile.
        stops: Seconds by stop, most first.
        functions: Seconds in a function itself, most first.
    """

    seconds: float
    stops: Mapping[str, float]
    functions: Mapping[Function, float]

    @property
    def work_seconds(self) -> float:
        """Returns the seconds without waits and imports."""
        return self.seconds - self.stops.get(WAITING, 0.0) - self.stops.get(IMPORTING, 0.0)


def shares(path: Path) -> Shares:
    """Reads what cProfile left."""
    # pstats keeps its table in an attribute without a public reader or a type.
    table: dict[Function, tuple[int, int, float, float, dict[Function, tuple[int, int, float, float]]]]
    table = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    own = {function: entry[2] for function, entry in table.items()}
    stops = _arrived(table, own)
    return Shares(
        seconds=sum(own.values()),
        stops=dict(sorted(stops.items(), key=lambda item: -item[1])),
        functions=dict(sorted(own.items(), key=lambda item: -item[1])),
    )


def stop_of(function: Function) -> str | None:
    """Returns the stop of a function of ours, or None for a library's."""
    if function[2] in _WAITS:
        return WAITING
    if function[0].startswith(_IMPORTER):
        return IMPORTING
    try:
        path = Path(function[0]).relative_to(REPOSITORY).as_posix()
    except ValueError:
        return None
    if not path.startswith(_PARTS):
        return None
    return next((stop for prefix, stop in STOPS if path.startswith(prefix)), OTHER)


def _arrived(table: Mapping[Function, Any], own: Mapping[Function, float]) -> dict[str, float]:
    """Moves time from libraries to their callers until it belongs to Rollcast's functions."""
    stops: dict[str, float] = {}
    travelling = dict(own)
    first = True
    total = sum(own.values())
    for _ in range(_MAX_PASSES):
        moved: dict[Function, float] = {}
        for function, seconds in travelling.items():
            stop = stop_of(function)
            callers = table[function][4]
            # At first it is known whom a function worked for; afterwards only how long in all.
            weights = {caller: values[2 if first else 3] for caller, values in callers.items() if caller in table}
            weight = sum(weights.values())
            if stop is not None or weight <= 0:
                stops[stop or OTHER] = stops.get(stop or OTHER, 0.0) + seconds
                continue
            for caller, part in weights.items():
                moved[caller] = moved.get(caller, 0.0) + seconds * part / weight
        travelling, first = moved, False
        if sum(travelling.values()) <= _NEGLIGIBLE_SHARE * total:
            break
    stops[OTHER] = stops.get(OTHER, 0.0) + sum(travelling.values())
    return stops
