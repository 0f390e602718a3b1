"""Action spaces as action specs, and a policy's choices as what the environment takes."""

import math
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.specs import ActionSpec

from actor_client.envs.base import FloatArray, IntArray
from actor_client.envs.errors import UnsupportedSpace

SUPPORTED: Final = "Discrete, MultiDiscrete, MultiBinary and Box"

_log = structlog.get_logger(__name__)


class ActionPlan:
    """How the actions of one space are made from a policy's choices.

    Args:
        spec: As declared.
        shape: Of one action, as the environment takes it.
        dtype: Of one action.
        start: Added to discrete choices, [*shape]; None = nothing.
        low: Continuous actions are not less, [*shape]; None for a discrete space.
        high: Continuous actions are not more.
    """

    __slots__ = ("_dtype", "_high", "_low", "_shape", "_start", "spec")

    def __init__(
        self,
        spec: ActionSpec,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        start: NDArray[np.int64] | None = None,
        low: NDArray[Any] | None = None,
        high: NDArray[Any] | None = None,
    ) -> None:
        self.spec = spec
        self._shape = shape
        self._dtype = dtype
        self._start = start if start is not None and start.any() else None
        self._low = low
        self._high = high

    def batch(self, continuous: FloatArray | None, discrete: IntArray | None) -> NDArray[Any]:
        """Returns the actions of E environments, [E, *shape], in the space's dtype.

        Continuous ones are clipped to the space, which axes without bounds and rounding may leave, and rounded if the
        space holds integers.

        Args:
            continuous: float32 [E, n], transformed; None for a discrete space.
            discrete: int32 [E, b], counted from 0; None for a Box.
        """
        if discrete is not None:
            choices = discrete.reshape(len(discrete), *self._shape)
            return (choices if self._start is None else choices + self._start).astype(self._dtype)
        if continuous is None:
            raise ValueError("the policy gave neither continuous nor discrete actions")
        actions = continuous.reshape(len(continuous), *self._shape)
        if self._dtype.kind in "iu":
            actions = np.rint(actions)
        # In float64, because float32 bounds of a large integer type are not exact.
        return np.clip(actions, self._low, self._high).astype(self._dtype)

    def singles(self, continuous: FloatArray | None, discrete: IntArray | None) -> list[Any]:
        """Returns one action an environment, of the type that sampling the space gives: numpy scalars or arrays.

        For Discrete that is `np.int64`, which gymnasium checks 0.4 microseconds faster than a Python integer.
        """
        return list(self.batch(continuous, discrete))


def plan_actions(space: Any) -> ActionPlan:
    """Returns the plan of an action space.

    Args:
        space: The action space of one environment.

    Raises:
        UnsupportedSpace: See the class.
    """
    from gymnasium import spaces  # noqa: PLC0415 - environments are made after the command line is read

    if isinstance(space, spaces.Discrete):
        start = np.full((), int(space.start), np.int64)
        return ActionPlan(ActionSpec(discrete_branches=(int(space.n),)), (), np.dtype(np.int64), start=start)
    if isinstance(space, spaces.MultiDiscrete):
        branches = tuple(map(int, space.nvec.ravel()))
        start = np.asarray(space.start, np.int64)
        return ActionPlan(ActionSpec(discrete_branches=branches), space.shape, space.dtype, start=start)
    if isinstance(space, spaces.MultiBinary):
        branches = (2,) * math.prod(space.shape)
        return ActionPlan(ActionSpec(discrete_branches=branches), space.shape, space.dtype)
    if isinstance(space, spaces.Box) and 0 not in space.shape:
        return _plan_box(space)
    raise UnsupportedSpace(
        f"the action space is {space}; supported are {SUPPORTED}. Wrap the environment, for example in "
        f"gymnasium.wrappers.TransformAction"
    )


def _plan_box(space: Any) -> ActionPlan:
    with np.errstate(over="ignore"):  # A bound beyond float32 is no bound.
        low, high = space.low.astype(np.float32).ravel(), space.high.astype(np.float32).ravel()
    unbounded = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))
    if unbounded.size:
        _log.warning(
            "action_axes_without_bounds",
            axes=unbounded.tolist()[:16],
            consequence="the policy's raw draw, about -3 to 3, is the action; wrap the environment to scale it",
        )
    spec = ActionSpec(
        continuous_size=low.size, continuous_low=tuple(low.tolist()), continuous_high=tuple(high.tolist())
    )
    return ActionPlan(spec, space.shape, space.dtype, low=space.low, high=space.high)
