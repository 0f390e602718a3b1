"""Measures limits, each in its own process."""

import json
import sys

from tests.tools.bench.limits.minibatches import BATCH_SIZE, EPOCHS
from tests.tools.bench.measurement import Figures
from tests.tools.bench.processes import Child, Workplace
from tests.tools.bench.rollcast_run import ENVS

LIMIT_RUN_SECONDS = 120.0
SECONDS = 3.0


class Limit:
    """A module of `tests.tools.bench.limits`, which prints one line of JSON.

    Args:
        workplace: Where logs go.
        module: The module.
        title: Of the table.
        arguments: For the module.
    """

    def __init__(self, workplace: Workplace, module: str, title: str, arguments: tuple[str, ...]) -> None:
        self.name = module
        self.title = title
        self._workplace = workplace
        self._arguments = arguments

    def prepare(self) -> None:
        """Does nothing."""

    def measure(self, round_index: int) -> Figures:
        """Runs the module once."""
        command = [sys.executable, "-m", f"tests.tools.bench.limits.{self.name}", *self._arguments]
        with Child(self.title, command, self._workplace.log(f"{self.name}-{round_index}")) as child:
            child.wait_for_success(LIMIT_RUN_SECONDS)
            values = json.loads(child.log().strip().splitlines()[-1])
        return Figures({name: float(value) for name, value in values.items()})


def limits(workplace: Workplace) -> list[Limit]:
    """Returns the limits of an actor and of a learner."""
    stepping = "limit: stepping, acting and recording alone, one core"
    minibatches = f"limit: minibatches of {BATCH_SIZE:,} alone, {EPOCHS} epochs, one core"
    return [
        Limit(workplace, "stepping", stepping, (str(ENVS), str(SECONDS))),
        Limit(workplace, "minibatches", minibatches, (str(SECONDS),)),
    ]
