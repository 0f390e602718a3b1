"""Normalization of vector observations by running mean and variance.

The statistics are kept outside of the networks, in float64, and merged batch by batch; the networks hold a float32 copy
that changes once per update, before the update. The trained, the exported and the next acting policy therefore use the
same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from learner.shared.saved_tensors import require_numbers

_MIN_VARIANCE = 1e-8
WARM_UP_ROWS: Final = 1000
"""Rows before which values are not clipped: the deviation is not known yet."""
CLIP_DEVIATIONS: Final = 10.0
"""Largest distance from the mean at which a value enters the statistics, in deviations."""
_MIN_CLIPPED_DEVIATION = 0.01
"""Least deviation for clipping, absolute and relative to the mean: a value that was constant may start to vary."""


class Normalizer(nn.Module):
    """Maps ``[B, size]`` to ``clamp((x - mean) / std, -clip, clip)``; before the first `publish` it only clamps.

    Args:
        size: Number of values.
        clip: Largest size of a normalized value.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: int, clip: float) -> None:
        super().__init__()
        self._clip = clip
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.register_load_state_dict_post_hook(_require_positive)  # type: ignore[no-untyped-call]

    def forward(self, values: Tensor) -> Tensor:
        """Normalizes values ``[B, size]``."""
        return torch.clamp((values - self.mean) / self.std, -self._clip, self._clip)

    @torch.no_grad()
    def publish(self, moments: RunningMoments) -> None:
        """Copies the running statistics to the normalizer."""
        self.mean.copy_(moments.mean)
        self.std.copy_(moments.std())


def _require_positive(module: nn.Module, _: object) -> None:
    if isinstance(module, Normalizer) and not bool((module.std > 0).all()):
        raise ValueError("a normalizer has a standard deviation that is not positive")


class RunningMoments:
    """Holds count, mean and sum of squared deviations of a stream of rows, in float64.

    It starts as if one row with mean 0 and squared deviation 1 had been seen, as in ML-Agents, so that a constant input
    does not have zero variance. Batches are merged as in Chan et al. 1979 ("Updating formulae and a pairwise algorithm
    for computing sample variances"), whose result depends on the split of rows only by rounding.

    After `WARM_UP_ROWS`, `moments` clips values, so that a few rows of extreme values cannot change the statistics for
    good. Values are clipped and not left out, because statistics without them would never follow an environment whose
    scale changes: with clipping, the deviation grows geometrically until the new values are within the limit.

    Args:
        size: Number of values in a row.
        device: Device of the statistics.
        spread: Squared deviation of the first row.

    Attributes:
        clipped: Number of values that `moments` has clipped in this process, a float64 scalar on the device.
    """

    def __init__(self, size: int, device: torch.device | str = "cpu", *, spread: float = 1.0) -> None:
        self.count = torch.ones((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.m2 = torch.full((size,), spread, dtype=torch.float64, device=device)
        self.clipped = torch.zeros((), dtype=torch.float64, device=device)

    def moments(self, rows: Tensor) -> Tensor:
        """Computes the moments (`batch_moments`) of rows ``[N, size]`` with values clipped near the mean so far.

        Returns:
            ``[3, size]`` float64; not finite if a value is not.
        """
        values = rows.to(torch.float64)
        deviation = torch.maximum(self.std(), self.mean.abs() * _MIN_CLIPPED_DEVIATION)
        reach = deviation.clamp_min(_MIN_CLIPPED_DEVIATION) * CLIP_DEVIATIONS
        # No branch on the count: it would wait for the device.
        reach = torch.where(self.count > WARM_UP_ROWS, reach, torch.full_like(reach, torch.inf))
        clipped = values.clamp(self.mean - reach, self.mean + reach)
        is_finite = values.isfinite()
        self.clipped = self.clipped + ((clipped != values) & is_finite).sum()
        return batch_moments(torch.where(is_finite, clipped, values))

    def merge(self, batch: Tensor) -> None:
        """Adds the moments of a batch from `moments` or `batch_moments` (``[3, size]``)."""
        count, mean, m2 = batch[0, 0], batch[1], batch[2]
        total = self.count + count
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)
        self.m2 = self.m2 + m2 + delta.square() * (self.count * count / total)
        self.count = total

    def std(self) -> Tensor:
        """Returns the standard deviation ``[size]``, never zero."""
        return (self.m2 / self.count).clamp_min(_MIN_VARIANCE).sqrt()

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the statistics."""
        return {"count": self.count, "mean": self.mean, "m2": self.m2}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads saved statistics.

        Raises:
            ValueError: The statistics have another size, a count below 1 or negative squares, or are not finite in
                float32.
        """
        own = self.state_dict()
        for key, value in own.items():
            if state[key].shape != value.shape:
                raise ValueError(
                    f"normalizer statistics have the shape {list(state[key].shape)}, not {list(value.shape)}"
                )
            require_numbers(f"{key} of the normalizer statistics", state[key], value.dtype)
        found = {key: state[key].to(value.device) for key, value in own.items()}
        shown = torch.stack((found["mean"], (found["m2"] / found["count"]).sqrt())).float()  # as in the networks
        if bool(found["count"] < 1.0) or not bool(shown.isfinite().all()):
            raise ValueError("normalizer statistics have a count below 1, squares below 0, or values beyond float32")
        self.count, self.mean, self.m2 = found["count"], found["mean"], found["m2"]


def batch_moments(rows: Tensor) -> Tensor:
    """Computes the moments of rows ``[N, size]``.

    Returns:
        ``[3, size]`` float64: the count (repeated), the mean, and the sum of squared deviations from it.
    """
    values = rows.to(torch.float64)
    mean = values.mean(0)
    return torch.stack((torch.full_like(mean, rows.shape[0]), mean, (values - mean).square().sum(0)))
