"""Numbers of one update of several learners, combined for reports, and how well the learners work together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final

import numpy as np
import structlog
import torch
from rollcast.throttle import Throttle
from torch import Tensor

from learner.training.buffers.buffer import UpdateRows
from learner.training.optimizers.reduce import Reduce
from learner.training.trainers.rl import TrainerFailedError

log = structlog.get_logger(__name__)

COMPARED_UPDATES: Final = 100
"""Updates after which several learners compare their parameters."""
MAX_WAIT_RATIO: Final = 0.3
"""Share of an update in which a learner may wait for the others before a warning."""
WAIT_LOG_SECONDS: Final = 600.0


class Combined:
    """The same named numbers of each learner; of a single learner they are its own.

    Args:
        places: The place of each name's first number, and how many numbers it has.
        values: The numbers of each learner.
        rows: Number of rows behind the numbers of each learner; 0 for a learner whose numbers do not count.
    """

    def __init__(
        self, places: Mapping[str, tuple[int, int]], values: Sequence[Sequence[float]], rows: Sequence[float]
    ) -> None:
        counted = [index for index, count in enumerate(rows) if count] or [0]
        self._places = places
        self._values = [values[index] for index in counted]
        self._rows = [rows[index] for index in counted]

    def mean(self, name: str) -> list[float]:
        """Returns the mean of each number of a name over the rows of all learners."""
        if len(self._rows) == 1:
            return [each for (each,) in self._of(name)]
        total = sum(self._rows)
        return [
            sum(value * rows for value, rows in zip(each, self._rows, strict=True)) / total for each in self._of(name)
        ]

    def sum(self, name: str) -> list[float]:
        """Returns the sum of each number of a name over the learners."""
        return [each[0] if len(each) == 1 else sum(each) for each in self._of(name)]

    def max(self, name: str) -> list[float]:
        """Returns the largest of each number of a name."""
        return list(map(max, self._of(name)))

    def _of(self, name: str) -> list[tuple[float, ...]]:
        first, count = self._places[name]
        return list(zip(*(each[first : first + count] for each in self._values), strict=True))


def combined(reduce: Reduce, numbers: Mapping[str, Tensor], plan: UpdateRows) -> Combined:
    """Returns numbers, ``[]`` or ``[n]``, of all learners by name; waits for the device once."""
    places, parts, first = {}, [], 0
    for name, tensor in numbers.items():
        parts.append(tensor.double().reshape(-1))
        places[name] = first, len(parts[-1])
        first += len(parts[-1])
    scalars, rows = torch.cat(parts), 0.0 if plan.is_stand_in else float(plan.step_count)
    if reduce.ranks == 1:
        return Combined(places, [scalars.tolist()], [rows])
    *columns, counts = reduce.gather(torch.cat((scalars, scalars.new_tensor([rows])))).T.tolist()
    return Combined(places, list(zip(*columns, strict=True)), counts)


def draw_seeds(reduce: Reduce, *numbers: int) -> tuple[int, int]:
    """Returns two seeds of an update, which differ between learners.

    Args:
        reduce: Combines numbers over several learners.
        numbers: The seed of the run, and what names the update.
    """
    first, second = np.random.SeedSequence((reduce.rank, *numbers)).generate_state(2, np.uint64) >> np.uint64(1)
    return int(first), int(second)


class RankWatch:
    """Compares the parameters of several learners, and reports their steps and waits; does nothing for a single one.

    Args:
        reduce: Combines numbers over the learners.
        behavior: Name of the behavior.
        numbers: Reported numbers of the trainer.
    """

    def __init__(self, reduce: Reduce, behavior: str, numbers: MutableMapping[str, float]) -> None:
        self._reduce = reduce
        self._behavior = behavior
        self._numbers = numbers
        self._throttle = Throttle(WAIT_LOG_SECONDS)
        self._began = self._waited = 0.0

    def begin(self) -> None:
        """Begins an update."""
        self._began, self._waited = time.perf_counter(), self._reduce.wait_seconds

    def end(self, plan: UpdateRows, parameters: Tensor, update: int) -> None:
        """Ends an update that is kept.

        Args:
            plan: The steps of this learner.
            parameters: What all learners must agree on.
            update: Number of the update, from 1.

        Raises:
            TrainerFailedError: The parameters of two learners differ.
        """
        if self._reduce.ranks == 1:
            return
        if update % COMPARED_UPDATES == 0:
            self._compare(parameters, update)
        seconds, waited = time.perf_counter() - self._began, self._reduce.wait_seconds - self._waited
        own = [0.0 if plan.is_stand_in else float(plan.step_count), waited / seconds]
        found = self._reduce.gather(torch.tensor(own, dtype=torch.float64, device=parameters.device)).tolist()
        for rank, (steps, ratio) in enumerate(found):
            self._numbers[f"rank_steps/{rank}"] = steps
            self._numbers[f"rank_wait_ratio/{rank}"] = ratio
        most = max(ratio for _, ratio in found)
        if most > MAX_WAIT_RATIO and not self._reduce.rank and self._throttle.admit(None) is not None:
            log.warning(
                "ranks_wait",
                behavior=self._behavior,
                wait_ratio=round(most, 3),
                limit=MAX_WAIT_RATIO,
                hint="small networks train faster in one process: set rollcast.trainers lower, or use larger minibatches",
            )

    def _compare(self, parameters: Tensor, update: int) -> None:
        digest = hashlib.sha256(parameters.detach().cpu().numpy().tobytes()).digest()[:7]
        found = self._reduce.gather(torch.tensor(int.from_bytes(digest), device=parameters.device)).tolist()
        if len(set(found)) > 1:
            raise TrainerFailedError(
                f"the ranks of {self._behavior} have different parameters after update {update}: a trainer of a package "
                "must combine what it computes with TrainerContext.reduce"
            )
