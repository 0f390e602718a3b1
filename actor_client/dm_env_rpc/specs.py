"""Specs and tensors of dm_env_rpc: as observations and actions of a behavior, and as arrays."""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from dm_env_rpc.v1.dm_env_rpc_pb2 import DataType
from dm_env_rpc.v1.tensor_utils import pack_tensor
from numpy.typing import NDArray
from rollcast import limits
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.text import printable

from actor_client.dm_env_rpc.world import WorldFault
from actor_client.envs.base import FloatArray, IntArray, Observations
from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.factory import check_declaration
from actor_client.envs.spaces import ActionPlan, box_leaf, named_leaves, plan_box

DISCOUNT: Final = "discount"
"""The observation that dm_env takes as the discount; it is not observed unless it is named."""
_PAYLOADS: Final[Mapping[int, tuple[str, np.dtype[Any]]]] = MappingProxyType(
    {
        DataType.FLOAT: ("floats", np.dtype(np.float32)),
        DataType.DOUBLE: ("doubles", np.dtype(np.float64)),
        DataType.INT8: ("int8s", np.dtype(np.int8)),
        DataType.INT32: ("int32s", np.dtype(np.int32)),
        DataType.INT64: ("int64s", np.dtype(np.int64)),
        DataType.UINT8: ("uint8s", np.dtype(np.uint8)),
        DataType.UINT32: ("uint32s", np.dtype(np.uint32)),
        DataType.UINT64: ("uint64s", np.dtype(np.uint64)),
        DataType.BOOL: ("bools", np.dtype(np.bool_)),
    }
)
"""Field of a tensor, and type of its numbers, by the type of its spec; texts and messages cannot be sent to a learner."""
_MOST_NUMBERS: Final = limits.MAX_CHUNK_BYTES
"""Numbers of an observation; a step with more does not fit a chunk."""
_LARGEST_CHOICE: Final = 2**62
_NAMED: Final = 16
"""Names in a message."""


class TensorForm(NamedTuple):
    """The numbers of one tensor, with the attributes of a `gymnasium.spaces.Box`.

    Attributes:
        name: Its name.
        payload: Field of a tensor with its numbers.
        dtype: Their type.
        shape: Their shape.
        low: Least values, [*shape].
        high: Largest values, [*shape].
    """

    name: str
    payload: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    low: NDArray[Any]
    high: NDArray[Any]

    @classmethod
    def of(cls, what: str, spec: Any, most: int) -> "TensorForm":
        """Reads a TensorSpec.

        Args:
            what: What it is, for messages.
            spec: The TensorSpec.
            most: Most numbers.

        Raises:
            UnsupportedSpace: Its type or shape cannot be sent, or its bounds contradict it.
        """
        advice = f"; leave it out with --ignore {printable(spec.name)}"
        if spec.dtype not in _PAYLOADS:
            known = spec.dtype in DataType.values()
            kind = DataType.Name(spec.dtype) if known else f"{spec.dtype}, which dm_env_rpc 1.1 does not know"
            raise UnsupportedSpace(f"{what} has the type {kind}; only numbers and truth values can be sent{advice}")
        payload, dtype = _PAYLOADS[spec.dtype]
        shape = tuple(spec.shape)
        if len(shape) > limits.MAX_RANK - 1 or any(axis < 1 for axis in shape) or math.prod(shape) > most:
            raise UnsupportedSpace(
                f"{what} has the shape {list(shape[:_NAMED])}; at most {limits.MAX_RANK - 1} axes of fixed length with at "
                f"most {most} numbers can be sent{advice}"
            )
        least, largest = _widest(dtype)
        low = _bound(f"{what}: min", spec.min, least, payload=payload, dtype=dtype, shape=shape)
        high = _bound(f"{what}: max", spec.max, largest, payload=payload, dtype=dtype, shape=shape)
        if not (low <= high).all():
            ends = f"min {low.ravel()[:_NAMED].tolist()} and max {high.ravel()[:_NAMED].tolist()}"
            raise UnsupportedSpace(f"{what} has {ends}, which are no interval{advice}")
        return cls(spec.name, payload, dtype, shape, low, high)

    def read(self, tensor: Any) -> NDArray[Any]:
        """Returns the numbers of a tensor, [*shape].

        Raises:
            WorldFault: They have another type or shape.
        """
        payload = tensor.WhichOneof("payload")
        if payload != self.payload:
            raise WorldFault(f"{printable(self.name)!r} has {payload or 'no numbers'}; its spec has {self.payload}")
        shape, values = list(tensor.shape), _flat(getattr(tensor, payload), self.dtype)
        if shape != list(self.shape) or values.size not in (1, math.prod(self.shape)):
            raise WorldFault(
                f"{printable(self.name)!r} has {values.size} numbers of the shape {shape[:_NAMED]}; its spec has the shape "
                f"{list(self.shape)}"
            )
        return np.full(self.shape, values[0]) if values.size == 1 else values.reshape(self.shape)


def _flat(payload: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = payload.array
    return np.frombuffer(array, dtype) if isinstance(array, bytes) else np.fromiter(array, dtype, len(array))


def _widest(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Returns the bounds of numbers for which a spec has none: infinite, but those of the type for bytes and truth values."""
    if dtype.itemsize > 1:
        return -math.inf, math.inf
    return (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _bound(
    what: str, value: Any, default: float, *, payload: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Returns one bound of each number of a tensor, [*shape].

    Raises:
        UnsupportedSpace: It has another type, or another number of values.
    """
    found = value.WhichOneof("payload")
    if found is None:
        return np.broadcast_to(np.asarray(default), shape)  # takes no memory, whatever the shape
    bound = _flat(getattr(value, found), dtype) if found == payload else np.zeros(0, dtype)
    if bound.size not in (1, math.prod(shape)):
        raise UnsupportedSpace(
            f"{what} has {len(getattr(value, found).array)} values of {found}; it needs 1 or {math.prod(shape)} of {payload}"
        )
    return np.broadcast_to(bound.reshape(()), shape) if bound.size == 1 else bound.reshape(shape)


def _by_name(kind: str, specs: Mapping[int, Any]) -> dict[str, tuple[int, Any]]:
    """Returns the UID and the spec of each tensor, in the order of names; UIDs differ from world to world.

    Raises:
        UnsupportedSpace: Two have the same name.
    """
    found: dict[str, tuple[int, Any]] = {}
    for uid, spec in sorted(specs.items(), key=lambda item: item[1].name):
        if spec.name in found:
            raise UnsupportedSpace(f"two {kind}s are named {printable(spec.name)!r}; names must differ")
        found[spec.name] = uid, spec
    return found


def _names(names: Sequence[str] | Mapping[str, object]) -> str:
    shown = ", ".join(printable(name, 64) for name in list(names)[:_NAMED])
    return f"{shown}, ..." if len(names) > _NAMED else shown or "none"


class WorldPlan:
    """Converts between a policy's arrays and the tensors of worlds that declare the same.

    Args:
        specs: ActionObservationSpecs of the first world.
        behavior: Name of the behavior.
        reward: Name of the reward.
        observe: Names of the observations; empty for all but the reward and the discount.
        ignore: Names of observations and actions to leave out.

    Attributes:
        spec: The declared spec.

    Raises:
        UnsupportedSpace: An observation or action cannot be sent, or a name is unknown.
    """

    def __init__(
        self, specs: Any, behavior: str, *, reward: str, observe: Sequence[str] = (), ignore: Sequence[str] = ()
    ) -> None:
        observations, actions = _by_name("observation", specs.observations), _by_name("action", specs.actions)
        for flag, names, known in (
            ("reward", (reward,), observations),
            ("observe", observe, observations),
            ("ignore", ignore, observations | actions),
        ):
            if unknown := [name for name in names if name not in known]:
                offered = "observations" if flag != "ignore" else "observations and actions"
                raise UnsupportedSpace(
                    f"the server has no {_names(unknown)} for --{flag}; its {offered} are {_names(known)}"
                )
        self._declared = {name: spec for name, (_, spec) in (observations | actions).items()}
        left_out = {*ignore, reward} | (set() if observe else {DISCOUNT})
        observed = [name for name in (sorted(set(observe)) or observations) if name not in left_out]
        if len(observed) > limits.MAX_OBSERVATIONS:
            raise UnsupportedSpace(
                f"the server has {len(observed)} observations; at most {limits.MAX_OBSERVATIONS} can be sent: choose with --observe NAME"
            )
        self._observed = [
            TensorForm.of(f"observation {printable(name)!r}", observations[name][1], _MOST_NUMBERS) for name in observed
        ]
        self._reward = TensorForm.of(f"the reward {printable(reward)!r}", observations[reward][1], 1)
        self._acted = [
            TensorForm.of(f"action {printable(name)!r}", spec, limits.MAX_CONTINUOUS_ACTIONS)
            for name, (_, spec) in actions.items()
            if name not in ignore
        ]
        self._specs = _chosen(observations, actions, self._observed, self._reward, self._acted)
        self._leaves = named_leaves((((form.name,), form) for form in self._observed), box_leaf)
        self._plans = [_action_plan(form) for form in self._acted]
        self.spec = BehaviorSpec(behavior, tuple(leaf.spec for leaf in self._leaves), self._action_spec())
        check_declaration(self.spec)

    def uids(self, specs: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the UIDs of the actions, and of the observations with the reward as the last, in another world.

        Raises:
            WorldFault: It declares other tensors than the first world.
        """
        try:
            observations, actions = _by_name("observation", specs.observations), _by_name("action", specs.actions)
        except UnsupportedSpace as error:
            raise WorldFault(error.message) from None
        found = _chosen(observations, actions, self._observed, self._reward, self._acted)
        for (kind, name), spec in self._specs.items():
            if found[kind, name] != spec:
                raise WorldFault(
                    f"its {kind} {printable(name)!r} is declared otherwise than before, or in the first world"
                )
        return (
            tuple(actions[form.name][0] for form in self._acted),
            tuple(observations[form.name][0] for form in (*self._observed, self._reward)),
        )

    def read(self, tensors: Mapping[int, Any], uids: Sequence[int]) -> tuple[dict[str, NDArray[Any]], float]:
        """Returns the observations of a step by name, and its reward.

        Args:
            tensors: The tensors of the answer.
            uids: UIDs of the observations in this world; see `uids`.

        Raises:
            WorldFault: One is missing, or has another type or shape than it was declared with.
        """
        forms = [*self._observed, self._reward]
        missing = [form.name for form, uid in zip(forms, uids, strict=True) if uid not in tensors]
        if missing:
            raise WorldFault(f"the step has no {_names(missing)}")
        read = [form.read(tensors[uid]) for form, uid in zip(forms, uids, strict=True)]
        return {form.name: values for form, values in zip(self._observed, read, strict=False)}, float(read[-1].item())

    def encode(self, observed: Sequence[Mapping[str, NDArray[Any]]]) -> Observations:
        """Returns observations of E worlds for the policy, [E, *shape] each."""
        return [leaf.encode(observed) for leaf in self._leaves]

    def actions(self, continuous: FloatArray | None, discrete: IntArray | None) -> list[list[Any]]:
        """Returns the tensors of the actions of each of E worlds.

        Args:
            continuous: Environment actions, float32 [E, n]; None without continuous axes.
            discrete: Choices counted from 0, int32 [E, b]; None without branches.
        """
        axis = branch = 0
        parts: list[NDArray[Any]] = []
        for plan in self._plans:
            axes, branches = plan.spec.continuous_size, len(plan.spec.discrete_branches)
            parts.append(
                plan.batch(
                    continuous[:, axis : axis + axes] if axes and continuous is not None else None,
                    discrete[:, branch : branch + branches] if branches and discrete is not None else None,
                )
            )
            axis, branch = axis + axes, branch + branches
        return [[pack_tensor(values) for values in row] for row in zip(*parts, strict=True)]

    def _action_spec(self) -> ActionSpec:
        """Returns the axes and branches of all actions, each in the order of names."""
        specs = [plan.spec for plan in self._plans]
        firsts = [first for spec in specs for first in spec.first_choices or (0,) * len(spec.discrete_branches)]
        named = [*_described(self._acted, specs, axes=True), *_described(self._acted, specs, axes=False)]
        return ActionSpec(
            continuous_size=sum(spec.continuous_size for spec in specs),
            discrete_branches=tuple(size for spec in specs for size in spec.discrete_branches),
            continuous_low=tuple(bound for spec in specs for bound in spec.continuous_low),
            continuous_high=tuple(bound for spec in specs for bound in spec.continuous_high),
            descriptions=tuple(named),
            first_choices=tuple(firsts) if any(firsts) else (),
        )


def _chosen(
    observations: Mapping[str, tuple[int, Any]],
    actions: Mapping[str, tuple[int, Any]],
    observed: Sequence[TensorForm],
    reward: TensorForm,
    acted: Sequence[TensorForm],
) -> dict[tuple[str, str], Any]:
    """Returns the specs that are used, by kind and name; None for one that is missing."""
    nothing = (0, None)
    return {("observation", form.name): observations.get(form.name, nothing)[1] for form in (*observed, reward)} | {
        ("action", form.name): actions.get(form.name, nothing)[1] for form in acted
    }


def _action_plan(form: TensorForm) -> ActionPlan:
    """Returns the plan of one action: axes for fractions, branches for whole numbers and truth values.

    Raises:
        UnsupportedSpace: The choices of whole numbers are not limited, or too many.
    """
    if form.dtype.kind == "f":
        return plan_box(form)
    is_bounded = bool(np.isfinite(form.low).all() and np.isfinite(form.high).all())
    ends = [bound.astype(object).ravel() for bound in (form.low, form.high)] if is_bounded else []
    branches = tuple(int(most) - int(least) + 1 for least, most in zip(*ends, strict=True))
    firsts = tuple(map(int, ends[0])) if is_bounded else ()
    if not is_bounded or max(branches) > limits.MAX_CATEGORIES or max(map(abs, firsts)) > _LARGEST_CHOICE:
        raise UnsupportedSpace(
            f"action {printable(form.name)!r} holds whole numbers without both bounds, or with more than "
            f"{limits.MAX_CATEGORIES} choices; leave it out with --ignore {printable(form.name)}"
        )
    spec = ActionSpec(discrete_branches=branches, first_choices=firsts if any(firsts) else ())
    return ActionPlan(spec, form.shape, form.dtype, start=np.array(firsts, np.int64).reshape(form.shape))


def _described(forms: Sequence[TensorForm], specs: Sequence[ActionSpec], *, axes: bool) -> Iterator[str]:
    """Yields a readable name of each axis or branch."""
    for form, spec in zip(forms, specs, strict=True):
        count = spec.continuous_size if axes else len(spec.discrete_branches)
        name = printable(form.name, limits.MAX_DESCRIPTION_LENGTH // 2)[: limits.MAX_DESCRIPTION_LENGTH - 8]
        yield from [name] if form.shape == () and count else (f"{name}.{place}" for place in range(count))
