"""Action distributions and transforms in numpy: draws, modes and log-probabilities of each factor.

The learner has the same formulas in torch; both agree to float32 rounding, so that on fresh data the learner's own
log-probability equals the recorded one. n = continuous axes, b = discrete branches, A = sum of the branch sizes.
"""

import itertools
import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import Squash
from rollcast.transforms import CLIP, ActionTransform

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
MaskArray = NDArray[np.uint8]

_HALF_LOG_TWO_PI: Final = np.float32(0.5 * math.log(2.0 * math.pi))
_LOG_TWO: Final = np.float32(math.log(2.0))
_HALF: Final = np.float32(0.5)
_TWO: Final = np.float32(2.0)
_CLIP: Final = np.float32(CLIP)
_FORBIDDEN: Final = np.float32(-np.inf)


def draw_gaussian(mean: FloatArray, log_std: FloatArray, normal: FloatArray | None) -> FloatArray:
    """Returns raw draws `mean + exp(log_std) * normal`, or the mode.

    Args:
        mean: float32 [B, n].
        log_std: float32 [B, n].
        normal: Standard normal numbers, float32 [B, n]; None = return the mode, which is the mean.
    """
    if normal is None:
        return mean.copy()
    draw = np.exp(log_std)
    draw *= normal
    draw += mean
    return draw


def gaussian_log_prob(raw: FloatArray, mean: FloatArray, log_std: FloatArray) -> FloatArray:
    """Returns the log-density of each axis at the recorded draw, float32 [B, n].

    `-0.5 * ((raw - mean) / std)**2 - log_std - 0.5 * log(2 pi)`, computed from the rounded draw and not from the noise,
    because the learner receives the rounded draw.

    Args:
        raw: Draws, float32 [B, n].
        mean: float32 [B, n].
        log_std: float32 [B, n].
    """
    scaled = raw - mean
    scaled *= np.exp(-log_std)
    scaled *= scaled
    scaled *= -_HALF
    scaled -= log_std
    scaled -= _HALF_LOG_TWO_PI
    return scaled


def tanh_gaussian_log_prob(raw: FloatArray, mean: FloatArray, log_std: FloatArray) -> FloatArray:
    """Returns the log-density of `tanh(raw)` for each axis, float32 [B, n].

    The Gaussian log-density minus `log(1 - tanh(u)**2)` in the form `2 * (log 2 - u - softplus(-2 u))`, which does not
    lose all digits where tanh saturates (Haarnoja et al. 2018, appendix C, has the correction).

    Args:
        raw: Draws before the squash, float32 [B, n].
        mean: float32 [B, n].
        log_std: float32 [B, n].
    """
    # softplus(-2u) = log(exp(0) + exp(-2u))
    correction: FloatArray = np.logaddexp(np.float32(0.0), -_TWO * raw)
    correction += raw
    correction -= _LOG_TWO
    correction *= _TWO
    correction += gaussian_log_prob(raw, mean, log_std)
    return correction


def draw_uniform(numbers: FloatArray, squash: Squash) -> tuple[FloatArray, FloatArray]:
    """Returns raw draws that the squash maps to uniform actions, and the log-density of each axis, float32 [B, n] each.

    The density is that of the action under TANH, as in `tanh_gaussian_log_prob`, and that of the raw draw under
    CLIP3_DIV3, as in `gaussian_log_prob`.

    Args:
        numbers: Uniform numbers in (-1, 1), float32 [B, n].
        squash: TANH or CLIP3_DIV3.
    """
    if squash is Squash.TANH:
        return np.arctanh(numbers), np.full_like(numbers, -math.log(2.0))
    return numbers * _CLIP, np.full_like(numbers, -math.log(2.0 * CLIP))


class Categorical:
    """One categorical distribution per branch over its slice of the logits; draws by Gumbel-max.

    `argmax(logits + gumbel)` has the categorical distribution (Gumbel 1954; Maddison et al. 2014). Forbidden choices
    get minus infinity before the comparison, so they are never picked, whatever the graph's output.

    Args:
        branches: Number of choices of each branch, b entries.
        normalized: The logits are already log-probabilities of the allowed choices of each branch, which saves
            normalizing them here: 6 of 9 microseconds at 16 agents.
    """

    def __init__(self, branches: tuple[int, ...], *, normalized: bool) -> None:
        self.branches = branches
        self._bounds = tuple(itertools.pairwise(itertools.accumulate(branches, initial=0)))
        self._normalized = normalized
        self._rows = np.arange(0)

    def choose(
        self, logits: FloatArray, masks: MaskArray | None, gumbel: FloatArray | None
    ) -> tuple[IntArray, FloatArray]:
        """Returns choices, int32 [B, b], and their log-probabilities, float32 [B, b].

        Args:
            logits: float32 [B, A], branches side by side.
            masks: uint8 [B, A], 1 = allowed; None = all allowed. Each branch needs an allowed choice.
            gumbel: Standard Gumbel numbers, float32 [B, A]; None = take the mode.
        """
        agents = logits.shape[0]
        if self._rows.shape[0] != agents:
            self._rows = np.arange(agents)
        if masks is not None:
            logits = np.where(masks, logits, _FORBIDDEN)
        scores = logits if gumbel is None else logits + gumbel
        choices = np.empty((agents, len(self.branches)), np.int32)
        log_prob = np.empty((agents, len(self.branches)), np.float32)
        for branch, (begin, end) in enumerate(self._bounds):
            picked = scores[:, begin:end].argmax(axis=1)
            choices[:, branch] = picked
            part = logits[:, begin:end]
            chosen = part[self._rows, picked]
            log_prob[:, branch] = chosen if self._normalized else chosen - log_sum_exp(part)
        return choices, log_prob


def log_sum_exp(logits: FloatArray) -> FloatArray:
    """Returns `log(sum(exp(logits)))` of each row, float32 [B], without overflow; minus infinity adds nothing.

    Args:
        logits: float32 [B, k].
    """
    largest = logits.max(axis=1)
    total: FloatArray = np.exp(logits - largest[:, None]).sum(axis=1)
    total_log: FloatArray = np.log(total)
    total_log += largest
    return total_log


class PreparedTransform:
    """Computes `ActionTransform.apply` in a few float32 operations (5 instead of 40 microseconds).

    Args:
        transform: The transform in the policy's header.
    """

    def __init__(self, transform: ActionTransform) -> None:
        low = np.asarray(transform.low, np.float64)
        high = np.asarray(transform.high, np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        self._squash = transform.squash
        self._mapped = low.size > 0
        self._bounded = None if bounded.all() else bounded
        self._low, self._high = low.astype(np.float32), high.astype(np.float32)
        # Halves before the difference: high - low may exceed the largest float32.
        self._half = (high / 2 - low / 2).astype(np.float32)
        self._middle = (high / 2 + low / 2).astype(np.float32)

    def apply(self, raw: FloatArray) -> FloatArray:
        """Returns environment actions, float32 [B, n], a new array.

        An axis with an infinite bound is unchanged; a squashed value never leaves its bounds.

        Args:
            raw: Draws, float32 [B, n].
        """
        if self._squash is Squash.CLIP3_DIV3:
            mapped = np.minimum(raw, _CLIP)
            np.maximum(mapped, -_CLIP, out=mapped)
            mapped /= _CLIP
        elif self._squash is Squash.TANH:
            mapped = np.tanh(raw)
        else:
            mapped = raw.copy()
        if not self._mapped:
            return mapped
        mapped *= self._half
        mapped += self._middle
        if self._squash is not Squash.NONE:
            np.minimum(mapped, self._high, out=mapped)
            np.maximum(mapped, self._low, out=mapped)
        return mapped if self._bounded is None else np.where(self._bounded, mapped, raw)
