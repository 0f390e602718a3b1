"""Whether what a policy chose is numbers: one sum a step says so, and only where it is not, rows are looked at."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.actions import Actions, FloatArray, MaskArray

LARGEST_OBSERVATION: Final = 1e15
"""A learner refuses rows with larger ones, as it does infinite ones: networks square what they see, in float32."""


def are_numbers(actions: Actions) -> bool:
    """Returns whether all draws and memories are finite.

    Log-probabilities are computed from draws, means and deviations, or from logits; none of these can be NaN or infinite
    without them. A sum costs a third of what a comparison of each does, and a sum that overflows is looked at again.
    """
    return _is_finite(actions.log_prob) and (actions.memory_out is None or _is_finite(actions.memory_out))


def without_numbers(actions: Actions) -> NDArray[np.bool_]:
    """Returns which agents have a draw or a memory that is not finite, bool [B]."""
    faulty = np.zeros(len(actions.log_prob), np.bool_)
    faulty |= ~np.isfinite(actions.log_prob).all(axis=1)
    if actions.memory_out is not None:
        faulty |= ~np.isfinite(actions.memory_out).all(axis=1)
    return faulty


def unusable(
    observations: Sequence[NDArray[Any]], masks: MaskArray | None, branches: Sequence[int]
) -> NDArray[np.bool_]:
    """Returns which agents see what no policy can act on, bool [B]: NaN, infinity or excess, or no choice allowed.

    Args:
        observations: [B, *shape] each.
        masks: Allowed choices, uint8 [B, sum of branches], or None.
        branches: Number of choices of each branch.
    """
    faulty = np.zeros(len(observations[0]), np.bool_)
    for values in observations:
        if values.dtype.kind == "f":  # comparisons are false for NaN
            faulty |= ~(np.abs(values) <= LARGEST_OBSERVATION).all(axis=tuple(range(1, values.ndim)))
    if masks is not None:
        for begin, end in itertools.pairwise(itertools.accumulate(branches, initial=0)):
            faulty |= ~masks[:, begin:end].any(axis=1)
    return faulty


def culprit(outputs: Mapping[str, FloatArray], rows: NDArray[np.bool_]) -> str:
    """Says which of a graph's outputs are not finite, or that what follows from them is not.

    Args:
        outputs: [B, k] each, by name.
        rows: Where to look, bool [B].
    """
    names = [name for name, values in outputs.items() if not np.isfinite(values[rows]).all()]
    if names:
        return f"its output {names[0]} is not finite"
    return f"the draw from its outputs {' and '.join(outputs)} is not finite"


def _is_finite(values: FloatArray) -> bool:
    return math.isfinite(np.add.reduce(values, axis=None)) or bool(np.isfinite(values).all())
