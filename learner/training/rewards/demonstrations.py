"""Recorded demonstrations of a behavior on the trainer's device, in the form of the trainer's experience."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from rollcast.demonstrations import Pairing
from rollcast.demonstrations.collecting import Demonstration
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.pairing import Paired
from rollcast.demonstrations.reading import read_demonstrations
from rollcast.enums import Squash
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.transforms import CLIP
from torch import Tensor

from learner.shared.exits import ExitCode, UserError
from learner.training.rewards.transitions import Transitions

Index = NDArray[np.int64]

log = structlog.get_logger(__name__)

LARGEST_TANH = 0.999
"""Largest value under tanh, which maps 3.8 to it: no finite draw maps to 1, and larger draws would be far from all
others."""


MOST_PAIRINGS = 8
"""Lines about where the files of a folder have their actions."""


class DemonstrationBuffer:
    """Holds the N steps of all demonstrations.

    Continuous actions are stored as the draws that would have produced them, so that the same code reads them and the
    actors' draws: for CLIP3_DIV3, three times the values of the file.

    Args:
        demonstrations: Demonstrations of one behavior, with at least one step.
        action: Actions of the behavior.
        device: Device of all tensors.
        squash: How actors squash a continuous draw.

    Attributes:
        lengths: Lengths of the episodes, int64 ``[E]`` on the host: steps are in order of time, one episode after
            another.
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        action: ActionSpec,
        device: torch.device,
        squash: Squash = Squash.CLIP3_DIV3,
    ) -> None:
        self._device = device
        moments = np.cumsum([0, *(len(one.observations[0]) for one in demonstrations)])[:-1]
        rows = _joined([one.rows + first for one, first in zip(demonstrations, moments, strict=True)])
        following = _joined([one.next_rows + first for one, first in zip(demonstrations, moments, strict=True)])
        order, self.lengths = _in_time(rows, following)
        self._rows = self._on_device(rows[order])
        self._next_rows = self._on_device(following[order])
        self._observations = [
            self._on_device(_joined(parts)) for parts in zip(*(one.observations for one in demonstrations), strict=True)
        ]
        units = [one.continuous for one in demonstrations if one.continuous is not None]
        choices = [one.discrete for one in demonstrations if one.discrete is not None]
        self._continuous = as_draws(self._on_device(_joined(units)[order]), action, squash) if units else None
        self._discrete = self._on_device(_joined(choices)[order].astype(np.int64)) if choices else None
        masks = _joined_masks(demonstrations, action)
        self._masks = None if masks is None else self._on_device(masks[order])
        rewards = _joined([one.rewards + one.group_rewards for one in demonstrations])
        self._rewards = self._on_device(rewards[order].astype(np.float32))
        terminated = _joined([one.terminated for one in demonstrations])
        self._terminated = self._on_device(terminated[order].astype(np.float64))

    @classmethod
    def load(
        cls,
        path: str,
        spec: BehaviorSpec,
        device: torch.device,
        squash: Squash = Squash.CLIP3_DIV3,
        *,
        setting: str,
        left_out: Collection[str] = (),
        pairing: Pairing = "auto",
    ) -> DemonstrationBuffer:
        """Reads a file, or all files of a folder.

        Args:
            path: Path from the run file.
            spec: Specification of the behavior.
            device: Device of all tensors.
            squash: How actors squash a continuous draw.
            setting: Setting that names the path, for messages.
            left_out: Names of observations that are not read, and that a demonstration may lack.
            pairing: The record that has the action of a step.

        Raises:
            UserError: There is no demonstration, one cannot be read, or one belongs to another behavior.
        """
        try:
            found = read_demonstrations(Path(path), spec, left_out=left_out, pairing=pairing)
        except BadDemonstration as error:
            raise UserError(ExitCode.RUN_FILE, f"{setting}: {error}") from error
        _tell(found, setting, spec)
        return cls(found, spec.action, device, squash)

    def __len__(self) -> int:
        return len(self._rows)

    def at(self, steps: Tensor) -> Transitions:
        """Gathers transitions of chosen steps ``[B]`` int64, on the device."""
        rows, following = self._rows.index_select(0, steps), self._next_rows.index_select(0, steps)
        return Transitions(
            self._rewards.index_select(0, steps),
            self._terminated.index_select(0, steps),
            [values.index_select(0, rows) for values in self._observations],
            [values.index_select(0, following) for values in self._observations],
            None if self._continuous is None else self._continuous.index_select(0, steps),
            None if self._discrete is None else self._discrete.index_select(0, steps),
        )

    def masks_at(self, steps: Tensor) -> Tensor | None:
        """Gathers the masks of chosen steps ``[B]`` int64, on the device.

        Returns:
            Uint8 ``[B, sum(branches)]``, 1 = allowed, which includes the demonstrated choices; None if no file has a
            mask.
        """
        return None if self._masks is None else self._masks.index_select(0, steps)

    def drawn(self, size: int, generator: torch.Generator) -> Transitions:
        """Draws transitions of B steps uniformly, with replacement.

        Args:
            size: Number of steps, B.
            generator: Generator on the buffer's device.
        """
        return self.at(torch.randint(len(self), (size,), generator=generator, device=self._device))

    def _on_device(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined_masks(demonstrations: Sequence[Demonstration], action: ActionSpec) -> NDArray[np.uint8] | None:
    """Returns the masks of all steps, uint8 ``[N, sum(branches)]``; None if everything was always allowed.

    Demonstrated choices count as allowed, whatever a mask says: otherwise their likelihood would be 0 and the loss
    unbounded.
    """
    if all(one.masks is None for one in demonstrations):
        return None
    parts = []
    for one in demonstrations:
        masks = np.ones((len(one.rows), action.mask_size), np.uint8) if one.masks is None else one.masks.copy()
        if one.discrete is not None:
            np.put_along_axis(masks, _columns_of(one.discrete, action), 1, axis=1)
        parts.append(masks)
    joined: NDArray[np.uint8] = _joined(parts)
    return joined


def _columns_of(discrete: NDArray[np.int32], action: ActionSpec) -> Index:
    """Returns the columns of choices ``[N, b]`` in a mask, int64 ``[N, b]``."""
    columns: Index = discrete + np.cumsum([0, *action.discrete_branches])[:-1]
    return columns


def _forbidden(demonstrations: Sequence[Demonstration], action: ActionSpec) -> int:
    """Returns the number of demonstrated choices that their mask forbids."""
    return sum(
        int((np.take_along_axis(one.masks, _columns_of(one.discrete, action), axis=1) == 0).sum())
        for one in demonstrations
        if one.masks is not None and one.discrete is not None
    )


def _in_time(rows: Index, following: Index) -> tuple[Index, Index]:
    """Sorts steps so that each agent's steps are consecutive, even if the file interleaves agents.

    Args:
        rows: Row of each step's observation, ``[N]``.
        following: Row of the observation after it, ``[N]``.

    Returns:
        The order, ``[N]``, and the number of steps of each episode, ``[E]``.
    """
    step_at = {row: step for step, row in enumerate(rows.tolist())}
    continued = set(following.tolist())
    order: list[int] = []
    lengths: list[int] = []
    for first in [step for step, row in enumerate(rows.tolist()) if row not in continued]:
        begin = len(order)
        step: int | None = first
        while step is not None:
            order.append(step)
            step = step_at.get(int(following[step]))
        lengths.append(len(order) - begin)
    return np.array(order, np.int64), np.array(lengths, np.int64)


def as_draws(units: Tensor, action: ActionSpec, squash: Squash) -> Tensor:
    """Returns the draws ``[N, n]`` from which a policy's actors would have made these actions.

    Args:
        units: Values of the files: [-1, 1] between an axis' bounds; an axis without bounds is unchanged.
        action: Actions of the behavior.
        squash: How actors squash a draw of an axis with bounds.
    """
    size = action.continuous_size
    low = torch.tensor(action.continuous_low or [-1.0] * size)
    high = torch.tensor(action.continuous_high or [1.0] * size)
    bounded = (low.isfinite() & high.isfinite()).to(units.device)
    if squash is Squash.CLIP3_DIV3:
        draws = units * CLIP
    elif squash is Squash.TANH:
        draws = torch.atanh(units.clamp(-LARGEST_TANH, LARGEST_TANH))
    else:
        draws = units
    return torch.where(bounded, draws, units)


def _tell(found: Sequence[Demonstration], setting: str, spec: BehaviorSpec) -> None:
    """Logs what was read, and warns of likely mistakes in it."""
    returns = sum(float(one.rewards.sum() + one.group_rewards.sum()) for one in found)
    episodes = sum(one.episodes for one in found)
    log.info(
        "demonstrations",
        behavior=spec.name,
        setting=setting,
        files=len(found),
        episodes=episodes,
        steps=sum(len(one.rows) for one in found),
        mean_return=round(returns / episodes, 4) if episodes else None,
    )
    alike: dict[Paired, list[str]] = {}
    for one in found:
        alike.setdefault(one.paired, []).append(one.path.name)
    for paired, files in list(alike.items())[:MOST_PAIRINGS]:
        tell = log.info if paired.is_sure else log.warning
        tell(
            "demonstrations_paired",
            behavior=spec.name,
            files=files[:MOST_PAIRINGS],
            demo_pairing="next_record" if paired.late else "same_record",
            evidence=paired.evidence,
            note="an action is in the record after its observation, as Unity's recorder writes it"
            if paired.late
            else "an action is in the record of its observation",
            **({} if paired.is_sure else {"advice": f"if this is wrong, set {setting.removesuffix('path')}pairing"}),
        )
    if len(alike) > MOST_PAIRINGS:
        log.info("demonstrations_paired", behavior=spec.name, more=len(alike) - MOST_PAIRINGS)
    clipped = sum(one.clipped for one in found)
    if clipped:
        log.warning(
            "demonstrations_clipped",
            behavior=spec.name,
            actions=clipped,
            note="continuous actions outside [-1, 1] count as -1 or 1, because a policy cannot exceed them",
        )
    forbidden = _forbidden(found, spec.action)
    if forbidden:
        log.warning(
            "demonstrations_against_masks",
            behavior=spec.name,
            choices=forbidden,
            note="choices that the mask of their own record forbids count as allowed",
        )
