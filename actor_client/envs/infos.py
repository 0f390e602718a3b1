"""Reads action masks and numbers of episodes from the infos of environments."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast import limits

from actor_client.envs.base import MaskArray

_log = structlog.get_logger(__name__)

ACTION_MASK: Final = "action_mask"
"""The key that environments of the Gymnasium family use, for example Taxi."""
MOST_SHOWN: Final = 16
"""Most branches whose sizes a message lists."""
LATE_MASK: Final = (
    f"info has {ACTION_MASK!r}, but the info of the first reset had none; return a mask from every reset, all "
    "ones if every action is allowed"
)
"""The reason to refuse a mask: the first reset decides whether there are masks."""


MASK_NAMES: Final = frozenset(
    {
        *(ACTION_MASK, "action_masks", "mask", "masks", "valid_mask", "legal_actions", "legal_moves"),
        *("avail_actions", "available_actions", "valid_actions"),
    }
)
"""Names that masks have by the conventions of RLlib, Tianshou, SB3, OpenSpiel and SMAC."""


def warn_of_other_mask(info: Mapping[str, Any], size: int) -> None:
    """Warns of a mask under another name than `action_mask`.

    Args:
        info: The info of a first reset, without a mask.
        size: Entries of a mask; of all copies together for a vector environment.
    """
    for name in MASK_NAMES & set(info):
        if size and np.size(info[name]) == size:
            warn_of_mask(f"info[{name!r}]")


def warn_of_mask(where: str) -> None:
    """Warns of a mask that is not used.

    Args:
        where: The place in which it was found.
    """
    _log.warning(
        "mask_not_used",
        found=where,
        consequence="the policy chooses forbidden actions, too",
        action=f"return it as info[{ACTION_MASK!r}] from reset and step, 1 for each allowed choice",
    )


def read_mask(info: Mapping[str, Any], branches: Sequence[int]) -> MaskArray | None:
    """Returns the action mask of one environment, uint8 [sum of branches], or None if it gave none.

    Args:
        info: The environment's info; a mask of several branches may be one array or one array per branch.
        branches: Sizes of the branches; without any there is no mask.

    Raises:
        ValueError: The mask does not match the branches.
    """
    mask = info.get(ACTION_MASK) if info and branches else None
    return None if mask is None else _allowed(mask, branches)


def read_vector_masks(infos: Mapping[str, Any], num_envs: int, branches: Sequence[int]) -> MaskArray | None:
    """Returns the action masks of a vector environment, uint8 [num_envs, sum of branches], or None if it gave none.

    Copies without a mask, according to `_action_mask`, may choose everything.

    Args:
        infos: Infos of the whole batch.
        num_envs: Number of copies.
        branches: See `read_mask`.

    Raises:
        ValueError: The masks do not match the branches.
    """
    masks = infos.get(ACTION_MASK) if infos and branches else None
    if masks is None:
        return None
    if not isinstance(masks, np.ndarray) or masks.shape[:1] != (num_envs,):
        found = (
            f"the shape {list(masks.shape)}" if isinstance(masks, np.ndarray) else f"the type {type(masks).__name__}"
        )
        raise ValueError(
            f"infos[{ACTION_MASK!r}] has {found}; it must be an array [{num_envs} environments, {sum(branches)} "
            "choices]"
        )
    if masks.dtype == object:
        allowed = np.ones((num_envs, sum(branches)), np.uint8)
        for env, mask in enumerate(masks):
            if mask is not None:
                allowed[env] = _allowed(mask, branches)
        return allowed
    allowed = _flags(masks.reshape(num_envs, -1), branches)
    if (given := infos.get(f"_{ACTION_MASK}")) is not None:
        allowed[np.logical_not(given)] = 1
    return allowed


def check_masks(masks: MaskArray, branches: Sequence[int]) -> None:
    """Checks that each agent has a choice in each branch.

    Args:
        masks: uint8 [B, sum of branches].
        branches: Sizes of the branches.

    Raises:
        ValueError: A branch has no allowed choice.
    """
    allowed = _any_allowed(masks, branches)
    if not allowed.all():
        row, branch = np.argwhere(allowed == 0)[0].tolist()
        raise ValueError(
            f"the action mask of row {row} allows no choice of branch {branch}; it must allow at least one"
        )


def open_stuck_branches(masks: MaskArray, branches: Sequence[int]) -> MaskArray:
    """Returns masks that allow all choices of a branch without an allowed one, which is possible after an end.

    No action is chosen under such a mask, but the contract requires a choice in each branch.

    Args:
        masks: uint8 [B, sum of branches].
        branches: Sizes of the branches.
    """
    stuck = np.repeat(_any_allowed(masks, branches) == 0, branches, axis=1)
    return np.where(stuck, np.uint8(1), masks)


def _any_allowed(masks: MaskArray, branches: Sequence[int]) -> MaskArray:
    """Returns whether each branch of each row has a choice, uint8 [B, b]."""
    return np.maximum.reduceat(masks, np.cumsum((0, *branches[:-1])), axis=1)


def _allowed(mask: Any, branches: Sequence[int]) -> MaskArray:
    """Returns one mask from one array or from nested tuples of arrays."""
    return _flags(np.concatenate(list(_parts(mask)) or [np.zeros(0)]), branches)


def _parts(mask: Any) -> Iterator[NDArray[Any]]:
    if isinstance(mask, tuple | list):
        for part in mask:
            yield from _parts(part)
    else:
        yield np.ravel(mask)


def _flags(values: NDArray[Any], branches: Sequence[int]) -> MaskArray:
    """Returns masks as 0 and 1.

    Args:
        values: [..., n] of any type.
        branches: Sizes of the branches; n must be their sum.
    """
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"info[{ACTION_MASK!r}] has the type {values.dtype}; it must hold numbers or booleans, where 0 forbids a "
            "choice"
        )
    found, needed = values.shape[-1], sum(branches)
    if found != needed:
        sizes = " + ".join(map(str, branches)) if 1 < len(branches) <= MOST_SHOWN else ""
        raise ValueError(
            f"info[{ACTION_MASK!r}] has {found} entries; it needs one for each of the "
            f"{sizes and sizes + ' = '}{needed} choices of the action space"
        )
    allowed: MaskArray = (values != 0).astype(np.uint8)
    return allowed


MAX_INFOS: Final = 32
"""Most numbers of one episode, because each becomes a column of a chunk; further ones are dropped."""


def episode_numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """Returns the scalar numbers of an info dictionary by valid names, one nested level included.

    Args:
        info: The info of the last step of an episode.
    """
    return dict(_numbers(info, "", nested=True)) if info else {}


def _numbers(info: Mapping[str, Any], prefix: str, *, nested: bool) -> Iterator[tuple[str, float]]:
    found = 0
    for key, value in info.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and nested:
            yield from _numbers(value, f"{name}.", nested=False)
        elif is_number(value) and limits.NAME_PATTERN.fullmatch(name) and found < MAX_INFOS:
            found += 1
            yield name, float(value)


def is_number(value: Any) -> bool:
    """Returns whether a value is one real number or boolean, in Python's or numpy's types."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, int | float | np.integer | np.floating | np.bool_)


def vector_episode_numbers(infos: Mapping[str, Any], env: int, num_envs: int) -> dict[str, float]:
    """Returns the numbers of one environment from the infos of a vector environment.

    Each key holds an array with one entry per environment, and `_key` marks the entries that are set.

    Args:
        infos: Infos of the whole batch; may be nested.
        env: The environment's index.
        num_envs: Number of environments.
    """
    return episode_numbers(_row(infos, env, num_envs, nested=True)) if infos else {}


def _row(infos: Mapping[str, Any], env: int, num_envs: int, *, nested: bool) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, values in infos.items():
        given = infos.get(f"_{key}")
        if key.startswith("_") or (isinstance(given, np.ndarray) and given.shape == (num_envs,) and not given[env]):
            continue
        if isinstance(values, Mapping) and nested:
            row[key] = _row(values, env, num_envs, nested=False)
        elif isinstance(values, np.ndarray) and values.shape == (num_envs,):
            row[key] = values[env]
    return row
