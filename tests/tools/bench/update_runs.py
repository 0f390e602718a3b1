"""Measures how fast a process of trainers updates while the service, on another core, takes the rows of many sessions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final

import yaml

from tests.tools.bench.measurement import Figures, MeasurementFailed, Unavailable
from tests.tools.bench.processes import Child, Workplace, on_cores
from tests.tools.bench.rollcast_run import serving
from tests.tools.bench.session_runs import SETTLE_SECONDS, Generator, Load, core_share, cpu_seconds
from tests.tools.bench.table import Column, Layout, Pair

UPDATES: Final = "updates_per_second"
LOAD_BYTES: Final = "load_bytes_per_second"
SERVICE_SHARE: Final = "service_cpu_share"

TRAINED: Final = "Trained"
"""The behavior that updates without a pause: one session sends it rows as fast as credit allows, and its actors do not wait
for the version of an update, so that the time between two updates is none of the service's."""
FILLED: Final = "Filled"
"""The behavior with the load: its pictures go into a replay memory, from which nothing is drawn."""
PICTURE_SIDE: Final = 84
CHUNK_STEPS: Final = 64
CHUNK_BYTES: Final = CHUNK_STEPS * PICTURE_SIDE**2
SESSIONS: Final = 300
SECONDS: Final = 40.0
_NEVER: Final = 1_000_000_000
_TRAINERS: Final = "learner.start.trainer"
_MILLION: Final = 1_000_000
_BEHAVIORS: Final[Mapping[str, Mapping[str, Any]]] = {
    TRAINED: {
        "trainer_type": "appo",
        "hyperparameters": {"batch_size": 64, "buffer_size": 512, "num_epoch": 32},
        "network_settings": {"hidden_units": 64, "num_layers": 2},
    },
    FILLED: {
        "trainer_type": "sac",
        "hyperparameters": {"batch_size": 64, "buffer_size": 10_000, "buffer_init_steps": _NEVER},
        "network_settings": {"hidden_units": 64, "num_layers": 1},
    },
}


QUIET: Final = "updates-quiet"
AMOUNTS: Final[Mapping[str, float]] = {QUIET: 0.0, "updates-30": 30.0, "updates-300": 300.0}
"""What the sessions of `FILLED` send together, in MB a second, by the name of the measurement."""
_COLUMNS: Final = (
    Column("updates/s", UPDATES, ".2f"),
    Column("load, MB/s", LOAD_BYTES, ",.0f", 1e-6),
    Column("cores of the service", SERVICE_SHARE, ".2f"),
)
LAYOUT: Final = Layout(
    "first: no load. The service and what sends share one core, and the trainers have another: a load that a third core would "
    "send may not be reached",
    pairs=tuple(Pair(f"{rate:,.0f} MB/s", QUIET, name, _COLUMNS) for name, rate in AMOUNTS.items() if rate),
)


class UpdatesUnderLoad:
    """A learner whose trainers are a process of their own, with a core for the service and one for the trainers.

    The processes that send share the core of the service.

    Args:
        workplace: Where logs and run folders go.
        name: One of `AMOUNTS`.
    """

    def __init__(self, workplace: Workplace, name: str) -> None:
        self.name = name
        rate = AMOUNTS[name]
        self.title = f"{SESSIONS} sessions, {rate:,.0f} MB/s" if rate else "no load"
        self._workplace = workplace
        self._rate = rate * _MILLION

    def prepare(self) -> None:
        """Checks that there are two cores.

        Raises:
            Unavailable: There are not.
        """
        if len(os.sched_getaffinity(0)) < 2:
            raise Unavailable("the service and the trainers need a core each")

    def measure(self, round_index: int) -> Figures:
        """Measures once, after all sessions have joined."""
        name = f"{self.name}-{round_index}"
        service_core, trainers_core = sorted(os.sched_getaffinity(0))[:2]
        with ExitStack() as stack:
            learner, address = stack.enter_context(self._learner(name, service_core))
            trainers = _trainers_of(learner)
            _move(trainers, trainers_core)
            loads = [(TRAINED, Load(1, chunk_steps=CHUNK_STEPS, period_seconds=0.0), 0)]
            if self._rate:
                load = Load(SESSIONS, chunk_steps=CHUNK_STEPS, period_seconds=SESSIONS * CHUNK_BYTES / self._rate)
                loads.append((FILLED, load, PICTURE_SIDE))
            senders = []
            for behavior, load, side in loads:
                options = ("--behavior", behavior, "--pixels", str(side))
                generator = Generator(self._workplace, f"{name}-{behavior}", address, load, *options)
                with on_cores([service_core]):
                    stack.enter_context(generator.child)
                senders.append(generator)
            for sender in senders:
                sender.wait_until_complete()
            time.sleep(SETTLE_SECONDS)
            _move(trainers, trainers_core)  # threads that were started meanwhile
            used = cpu_seconds(trainers)
            before = [sender.report() for sender in senders]
            share = core_share(learner.pid, SECONDS)
            after = [sender.report() for sender in senders]
            used = cpu_seconds(trainers) - used
        return figures_of(before, after, share - used / SECONDS)

    def _learner(self, name: str, core: int) -> AbstractContextManager[tuple[Child, str]]:
        """Runs the learner; its trainers begin on its core."""
        run_file = self._workplace.root / f"{name}.yaml"
        never = {"max_steps": _NEVER, "checkpoint_interval": _NEVER, "time_horizon": CHUNK_STEPS}
        block = {"torch_threads": 1, "http": False}
        document = {"behaviors": {key: {**value, **never} for key, value in _BEHAVIORS.items()}, "rollcast": block}
        run_file.write_text(yaml.safe_dump(document), encoding="utf-8")
        command = (sys.executable, "-m", "learner", "serve", run_file, "--torch-device", "cpu")
        return serving(command, self._workplace.runs / name, self._workplace.log(f"{name}-learner"), cores=[core])


def figures_of(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], service_share: float
) -> Figures:
    """Returns the figures between two reports of each generator.

    Args:
        before: The first reports: of the session of `TRAINED`, then of those of `FILLED`, if there are any.
        after: The second ones.
        service_share: Share of a core that the service used meanwhile.

    Raises:
        MeasurementFailed: Nothing was updated, or the load did not arrive.
    """
    (trained, *filled), (trained_after, *filled_after) = before, after
    seconds = trained_after["at"] - trained["at"]
    updates = trained_after["versions"] - trained["versions"]
    if seconds <= 0 or updates <= 0:
        raise MeasurementFailed("nothing was updated; the learner's log says why")
    values = {UPDATES: updates / seconds, SERVICE_SHARE: service_share}
    for first, second in zip(filled, filled_after, strict=True):
        steps = second["acked_steps"] - first["acked_steps"]
        if steps <= 0:
            raise MeasurementFailed("no picture was acked; the generator's log says why")
        values[LOAD_BYTES] = steps * PICTURE_SIDE**2 / (second["at"] - first["at"])
    return Figures(values)


def _trainers_of(learner: Child) -> int:
    """Returns the id of the process of the trainers."""
    for pid in learner.children():
        if _TRAINERS in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"):
            return pid
    raise learner.failed("has no process of trainers")


def _move(pid: int, core: int) -> None:
    """Moves all threads of a process to a core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), [core])


def contestants(workplace: Workplace) -> list[UpdatesUnderLoad]:
    """Returns the measurements: without a load, and with each."""
    return [UpdatesUnderLoad(workplace, name) for name in AMOUNTS]
