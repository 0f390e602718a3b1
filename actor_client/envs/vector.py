"""Environments that step many copies at once by themselves (`gymnasium.vector.VectorEnv`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.envs.base import FloatArray, IntArray, MaskArray, Observations, StepResult
from actor_client.envs.errors import RESET_VALUES, STEP_VALUES, EnvironmentFailed, count_fault, info_fault
from actor_client.envs.infos import (
    LATE_MASK,
    check_masks,
    open_stuck_branches,
    read_vector_masks,
    vector_episode_numbers,
)
from actor_client.envs.spaces import ActionPlan, ObservationPlan, plan_actions

_log = structlog.get_logger(__name__)

_NO_ENDS: Final = np.zeros(0, np.uint8)
_NO_ENDS.setflags(write=False)

NEXT_STEP: Final = "NextStep"
SAME_STEP: Final = "SameStep"
DISABLED: Final = "Disabled"


class VectorBatch:
    """One object with the interface of `gymnasium.vector.VectorEnv`.

    All three kinds of automatic reset are understood. NEXT_STEP, the usual one: the step after an end ignores its
    action and begins the new episode; such rows are reported as ignored. SAME_STEP: the step that ends an episode
    returns the first observation of the new one, and the final one as `final_obs` of the infos. DISABLED: the batch
    resets the ended copies itself.

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
        self.action_masks: MaskArray | None = None
        self._mode = _autoreset_mode(environment)
        self._seeds_each = _seeds_each(environment)
        self._closed = False
        self._to_ignore: NDArray[np.bool_] | None = None

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins a new episode everywhere; see `EnvBatch.reset`.

        Gymnasium's own collections of environments give each copy its seed. Of all others no more is known than that
        they take one, from which they draw all copies.
        """
        try:
            result = self._environment.reset(seed=list(seeds) if self._seeds_each else seeds[0])
            if (fault := count_fault("reset", result, RESET_VALUES)) is not None:
                raise EnvironmentFailed(None, fault)
            observations, infos = result
            if not isinstance(infos, Mapping):
                raise EnvironmentFailed(None, info_fault("reset", infos))
            self._to_ignore = None
            self.action_masks = None if self._read_masks(infos) is None else self._masks(infos)
            return self._encode(observations)
        except EnvironmentFailed:
            raise
        except Exception as error:
            raise EnvironmentFailed(None, error) from error

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Takes one action in each copy; see `EnvBatch.step`."""
        try:
            return self._step(self._actions.batch(continuous, discrete))
        except EnvironmentFailed:
            raise
        except Exception as error:
            raise EnvironmentFailed(None, error) from error

    def close(self) -> None:
        """Closes the environment, once; see `EnvBatch.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            self._environment.close()
        except Exception as error:  # noqa: BLE001 - a fault at the end must not hide the reason of the end
            _log.warning("environment_close_failed", error=str(error))

    def _step(self, actions: NDArray[Any]) -> StepResult:
        result = self._environment.step(actions)
        if (fault := count_fault("step", result, STEP_VALUES)) is not None:
            raise EnvironmentFailed(None, fault)
        observations, rewards, terminated, truncated, infos = result
        ignored, self._to_ignore = self._to_ignore, None
        rewards = np.array(rewards, np.float32).reshape(self.num_envs)
        ended_at = np.logical_or(terminated, truncated)
        if ignored is not None:
            # What such a row reports belongs to no episode.
            ended_at &= ~ignored
        ended: list[int] = np.flatnonzero(ended_at).tolist()
        if not ended:
            self._renew_masks(infos)
            return StepResult(self._encode(observations), rewards, ended, _NO_ENDS, None, None, (), ignored)
        branches = self.spec.action.discrete_branches
        # In the same step, the infos are the new episode's, and those of the old one are nested in them.
        last_infos = infos.get("final_info", {}) if self._mode == SAME_STEP else infos
        last_masks = None if self.action_masks is None else self._masks_or_ones(last_infos)
        numbers = [vector_episode_numbers(last_infos, env, self.num_envs) for env in ended]
        if self._mode == SAME_STEP:
            finals = self._finals_of_infos(infos, ended)
        else:
            finals = [array[ended_at] for array in self._encode(observations)]
        if self._mode == NEXT_STEP:
            self._to_ignore = ended_at
        elif self._mode == DISABLED:
            observations, first_infos = self._environment.reset(options={"reset_mask": ended_at.copy()})
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
            ends=np.where(np.asarray(terminated)[ended], SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED).astype(np.uint8),
            final_observations=finals,
            final_masks=None if last_masks is None else open_stuck_branches(last_masks[ended_at], branches),
            infos=numbers,
            ignored=ignored,
        )

    def _encode(self, observations: Any) -> Observations:
        """Returns copies, because vector environments may reuse their arrays."""
        return self._observations.encode_batch(observations)

    def _finals_of_infos(self, infos: Mapping[str, Any], ended: list[int]) -> Observations:
        finals = infos.get("final_obs")
        if finals is None:
            raise ValueError("the environment resets in the same step, but its infos have no 'final_obs'")
        return self._observations.encode([finals[env] for env in ended])

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
    """Returns whether `reset` takes one seed a copy."""
    from gymnasium import vector  # noqa: PLC0415 - environments are made after the command line is read

    return isinstance(getattr(environment, "unwrapped", None), vector.SyncVectorEnv | vector.AsyncVectorEnv)


def _autoreset_mode(environment: Any) -> str:
    """Returns the kind of automatic reset; what says nothing is taken for gymnasium's usual one."""
    mode = (getattr(environment, "metadata", None) or {}).get("autoreset_mode")
    value = getattr(mode, "value", mode)
    if value in (NEXT_STEP, SAME_STEP, DISABLED):
        return str(value)
    _log.warning("autoreset_mode_unknown", found=str(value), assumed=NEXT_STEP)
    return NEXT_STEP
