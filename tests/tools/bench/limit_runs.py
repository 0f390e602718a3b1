"""Measures limits, each in its own process."""

import json
import sys

from tests.tools.bench.measurement import Figures
from tests.tools.bench.processes import Child
from tests.tools.bench.workplace import Workplace

LIMIT_RUN_SECONDS = 120.0
EPOCHS = 4
"""As in the run file: a step goes through the network this many times."""
BATCH_SIZES = (256, 1024)
"""Of the run file, and of Sample Factory."""
CARTPOLE_STEP_BYTES = 16 + 4 + 4 + 4
"""Observation, action, log-probability and reward of one step, as they travel."""


class Limit:
    """A module of `tests.tools.bench.limits`, which prints one line of JSON.

    Args:
        workplace: Where logs go.
        module: The module.
        title: Of the table.
        arguments: For the module.
        name: Of the figures; None for that of the module.
    """

    def __init__(
        self, workplace: Workplace, module: str, title: str, arguments: tuple[str, ...], name: str | None = None
    ) -> None:
        self.name = module if name is None else name
        self._module = module
        self.title = title
        self._workplace = workplace
        self._arguments = arguments

    def prepare(self) -> None:
        """Does nothing."""

    def measure(self, round_index: int) -> Figures:
        """Runs the module once."""
        command = [sys.executable, "-m", f"tests.tools.bench.limits.{self._module}", *self._arguments]
        with Child(self.title, command, self._workplace.log(f"{self.name}-{round_index}")) as child:
            child.wait_for_success(LIMIT_RUN_SECONDS)
            values = json.loads(child.log().strip().splitlines()[-1])
        return Figures({name: float(value) for name, value in values.items()})


def limits(workplace: Workplace, *, envs: int, seconds: float) -> list[Limit]:
    """Returns all limits.

    Args:
        workplace: Where logs go.
        envs: Environments of the one actor process.
        seconds: How long each part of a limit is measured.
    """
    return [
        Limit(workplace, "stepping", f"stepping {envs} environments", (str(envs), str(seconds))),
        Limit(workplace, "minibatches", "minibatches", (str(seconds), *map(str, BATCH_SIZES))),
        Limit(workplace, "upload", "upload", (str(seconds),)),
    ]
