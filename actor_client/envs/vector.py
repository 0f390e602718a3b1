"""Environments that step many copies by themselves (`gymnasium.vector.VectorEnv`)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.envs.base import (
    NEXT_STEP,
    NO_ENDS,
    SAME_STEP,
    FloatArray,
    IntArray,
    MaskArray,
    Observations,
    StepResult,
)
from actor_client.envs.errors import RESET_VALUES, STEP_VALUES, EnvironmentFailed, count_fault, info_fault
from actor_client.envs.infos import (
    LATE_MASK,
    check_masks,
    open_stuck_branches,
    read_vector_masks,
    vector_episode_numbers,
    warn_of_other_mask,
)
from actor_client.envs.parameters import OPTION, EnvironmentParameters, setter_of, tell_pause
from actor_client.envs.spaces import ActionPlan, ObservationPlan, plan_actions
from actor_client.envs.tensors import actions_like, as_array, read_rewards, read_tensors
from actor_client.envs.tracebacks import place_of_code

_log = structlog.get_logger(__name__)

DISABLED: Final = "Disabled"


class VectorBatch:
    """One object with the interface of `gymnasium.vector.VectorEnv`.

    All three kinds of automatic reset are supported. NEXT_STEP, the default: the step after an end ignores its action
    and begins the new episode; such rows are reported as ignored. SAME_STEP: the step that ends an episode returns the
    first observation of the new one, and the final one as `final_obs` of the infos. DISABLED: the batch resets the
    ended copies itself.

    Environment parameters reach a method `set_parameters`, or, with DISABLED, the options of `reset`: a float32 array
    [E] for each parameter. `set_parameters` is called before a reset and after each step that ended episodes, for the
    episodes that the environment begins by itself.

    Values may be torch tensors on any device. If the observations are, the actions become tensors on the same device.

    Args:
        environment: The vector environment.
        behavior: The name of the behavior.

    Raises:
        UnsupportedSpace: A space cannot be sent.
    """

    def __init__(self, environment: Any, behavior: str) -> None:
        self._environment = environment
        self._observations = ObservationPlan(environment.single_observation_space)
        self._actions: ActionPlan = plan_actions(environment.single_action_space)
        self.spec = BehaviorSpec(name=behavior, observations=self._observations.specs, action=self._actions.spec)
        self.num_envs = int(environment.num_envs)
        self.active: int | None = None
        self.action_masks: MaskArray | None = None
        self._mode = _autoreset_mode(environment)
        self._seeds_each = _seeds_each(environment)
        self._closed = False
        self._is_new = True
        self._to_ignore: NDArray[np.bool_] | None = None
        self._as_actions = actions_like(None)
        self._parameters = EnvironmentParameters(self.num_envs)
        self._values: dict[str, FloatArray] = {}
        self._setter = setter_of(environment)
        self.takes_parameters = self._setter is not None or self._mode == DISABLED

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Sets the parameters of later episodes; see `EnvBatch.assign`."""
        self._parameters.assign(assignment)
        self._values = {}
        try:
            self._draw(range(self.num_envs))
        except Exception as error:
            raise EnvironmentFailed(None, error, place_of_code(self._environment.reset)) from error

    def set_paused(self, *, is_paused: bool) -> None:
        """Tells the vector environment of a pause; see `EnvBatch.set_paused`."""
        tell_pause(self._environment, None, is_paused=is_paused)

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins new episodes in all copies; see `EnvBatch.reset`.

        Gymnasium's own vector environments take one seed per copy. All others get a single seed, from which they derive
        those of the copies.
        """
        try:
            self._parameters.seed(seeds)
            self._draw(range(self.num_envs))
            options = self._options()
            given = {"options": options} if options else {}
            result = self._environment.reset(seed=list(seeds) if self._seeds_each else seeds[0], **given)
            if (fault := count_fault("reset", result, RESET_VALUES)) is not None:
                raise EnvironmentFailed(None, fault, place_of_code(self._environment.reset))
            observations, infos = result
            if not isinstance(infos, Mapping):
                raise EnvironmentFailed(None, info_fault("reset", infos), place_of_code(self._environment.reset))
            self._to_ignore = None
            self._as_actions = actions_like(self._observations.leaves[0].find(observations))
            infos = read_tensors(infos)
            self.action_masks = None if self._read_masks(infos) is None else self._masks(infos)
            if self.action_masks is None and self._is_new:
                warn_of_other_mask(infos, self.num_envs * self.spec.action.mask_size)
            self._is_new = False
            return self._encode(observations)
        except EnvironmentFailed:
            raise
        except Exception as error:
            raise EnvironmentFailed(None, error, place_of_code(self._environment.reset)) from error

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Steps each copy; see `EnvBatch.step`."""
        try:
            return self._step(self._actions.batch(continuous, discrete))
        except EnvironmentFailed:
            raise
        except Exception as error:
            raise EnvironmentFailed(None, error, place_of_code(self._environment.step)) from error

    def close(self) -> None:
        """Closes the environment, once; see `EnvBatch.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            self._environment.close()
        except Exception as error:  # noqa: BLE001 - a fault at the end must not hide the reason of the end
            _log.warning("environment_close_failed", error=str(error))
        self._environment = self._setter = None

    def _step(self, actions: NDArray[Any]) -> StepResult:
        result = self._environment.step(self._as_actions(actions))
        if (fault := count_fault("step", result, STEP_VALUES)) is not None:
            raise EnvironmentFailed(None, fault, place_of_code(self._environment.step))
        observations, rewards, terminated, truncated, infos = result
        ignored, self._to_ignore = self._to_ignore, None
        rewards = read_rewards(rewards, self.num_envs)
        terminated = as_array(terminated)
        ended_at = np.logical_or(terminated, as_array(truncated))
        if infos:
            infos = read_tensors(infos)
        if ignored is not None:
            # The report of such a row belongs to no episode.
            ended_at &= ~ignored
        ended: list[int] = np.flatnonzero(ended_at).tolist()
        if not ended:
            self._renew_masks(infos)
            return StepResult(self._encode(observations), rewards, ended, NO_ENDS, None, None, (), ignored)
        branches = self.spec.action.discrete_branches
        # With SAME_STEP, the infos are the new episode's, and the old one's are nested in them.
        last_infos = infos.get("final_info", {}) if self._mode == SAME_STEP else infos
        last_masks = None if self.action_masks is None else self._masks_or_ones(last_infos)
        numbers = [vector_episode_numbers(last_infos, env, self.num_envs) for env in ended]
        if self._mode == SAME_STEP:
            finals = self._finals_of_infos(infos, ended)
        else:
            finals = [array[ended_at] for array in self._encode(observations)]
        self._draw(ended)
        if self._mode == NEXT_STEP:
            self._to_ignore = ended_at
        elif self._mode == DISABLED:
            observations, first_infos = self._environment.reset(
                options={"reset_mask": ended_at.copy(), **self._options()}
            )
            first_infos = read_tensors(first_infos)
        if self._mode == DISABLED and last_masks is not None:
            masks = np.where(ended_at[:, None], self._masks_or_ones(first_infos), last_masks)
            check_masks(masks, branches)
            self.action_masks = masks
        else:
            self._renew_masks(infos)
        return StepResult(
            observations=self._encode(observations),
            rewards=rewards,
            ended=ended,
            ends=np.where(terminated[ended], SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED).astype(np.uint8),
            final_observations=finals,
            final_masks=None if last_masks is None else open_stuck_branches(last_masks[ended_at], branches),
            infos=numbers,
            ignored=ignored,
        )

    def _draw(self, envs: Iterable[int]) -> None:
        """Draws the environment parameters of the next episodes of some copies."""
        if not self.takes_parameters:
            return
        drawn = [(env, self._parameters.draw(env)) for env in envs]
        for env, values in drawn:
            for name, value in values.items():
                self._values.setdefault(name, np.zeros(self.num_envs, np.float32))[env] = value
        if self._values and self._setter is not None:
            self._setter({name: values.copy() for name, values in self._values.items()})

    def _options(self) -> dict[str, Any]:
        """Returns the options of a reset; empty if the parameters are set by a method."""
        if not self._values or self._setter is not None:
            return {}
        return {OPTION: {name: values.copy() for name, values in self._values.items()}}

    def _encode(self, observations: Any) -> Observations:
        """Returns copies, because vector environments may reuse their arrays."""
        return self._observations.encode_batch(observations)

    def _finals_of_infos(self, infos: Mapping[str, Any], ended: list[int]) -> Observations:
        finals = infos.get("final_obs")
        if finals is None:
            raise ValueError("the environment resets in the same step, but its infos have no 'final_obs'")
        if isinstance(finals, list) or (isinstance(finals, np.ndarray) and finals.dtype == object):
            return self._observations.encode([finals[env] for env in ended])
        return [array[ended] for array in self._encode(finals)]

    def _read_masks(self, infos: Mapping[str, Any]) -> MaskArray | None:
        return read_vector_masks(infos, self.num_envs, self.spec.action.discrete_branches)

    def _masks_or_ones(self, infos: Mapping[str, Any]) -> MaskArray:
        masks = self._read_masks(infos)
        return np.ones((self.num_envs, self.spec.action.mask_size), np.uint8) if masks is None else masks

    def _masks(self, infos: Mapping[str, Any]) -> MaskArray:
        masks = self._masks_or_ones(infos)
        if self._to_ignore is not None:
            masks[self._to_ignore] = 1
        check_masks(masks, self.spec.action.discrete_branches)
        return masks

    def _renew_masks(self, infos: Mapping[str, Any]) -> None:
        if self.action_masks is not None:
            self.action_masks = self._masks(infos)
        elif self._read_masks(infos) is not None:
            raise ValueError(LATE_MASK)


def _seeds_each(environment: Any) -> bool:
    """Returns whether `reset` takes one seed per copy."""
    from gymnasium import vector  # noqa: PLC0415 - environments are made after the command line is read

    return isinstance(getattr(environment, "unwrapped", None), vector.SyncVectorEnv | vector.AsyncVectorEnv)


def _autoreset_mode(environment: Any) -> str:
    """Returns the kind of automatic reset; gymnasium's default if the environment does not name it."""
    mode = (getattr(environment, "metadata", None) or {}).get("autoreset_mode")
    value = getattr(mode, "value", mode)
    if value in (NEXT_STEP, SAME_STEP, DISABLED):
        return str(value)
    _log.warning("autoreset_mode_unknown", found=str(value), assumed=NEXT_STEP)
    return NEXT_STEP
