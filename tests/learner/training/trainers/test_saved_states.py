"""Tests that faulty saved states are errors of one line with the exit code of checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest
import torch

from learner.shared.exits import ExitCode, UserError
from learner.training.trainers.base import Trainer
from tests.learner.training.trainers.companions import toys
from tests.learner.training.trainers.companions.test_companions import Run
from tests.learner.training.trainers.sac.started import make as make_sac
from tests.learner.training.trainers.started import make as make_ppo

Path = tuple[str | int, ...]

MADE: Final[Mapping[str, Callable[[], Trainer]]] = MappingProxyType(
    {
        "ppo": lambda: make_ppo(
            reward_signals={"extrinsic": {}, "curiosity": {"network_settings": {"hidden_units": 4}}}
        )[1],
        "sac": lambda: make_sac()[1],
        "companion": lambda: Run({toys.WORLD: {}}).trainer,
    }
)
MISSING: Final = object()
MAY_BE_MISSING: Final = frozenset({"cloning", "companions", "experience", toys.WORLD})
NOT_LOOKED_AT: Final = frozenset({"cloning", "choices", "device"})
"""Of what this run does not have, and of another kind of device."""


def leaves(state: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yields every value of a state, and where it is."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield (*path, key), value
            yield from leaves(value, (*path, key))


def changed(state: Mapping[Any, Any], path: Path, value: object) -> dict[Any, Any]:
    """Returns a state with another value at one place, or without the one there; the rest is shared."""
    key, rest = path[0], path[1:]
    if not rest:
        kept = {name: part for name, part in state.items() if name != key}
        return kept if value is MISSING else {**kept, key: value}
    return {**state, key: changed(state[key], rest, value)}


def nonsense(path: Path, value: object) -> list[object]:
    """Returns what could be at a place, and never may."""
    found: list[object] = [] if path[-1] in MAY_BE_MISSING else [MISSING]
    if path[-1] in NOT_LOOKED_AT or value == {}:
        return found
    if not isinstance(value, torch.Tensor):
        return [*found, -1, math.nan, "x\ny", *([2**70, True, torch.zeros(3)] if type(value) is int else [])]
    if not value.is_floating_point():
        return [*found, value[:0], "x"]
    return [*found, torch.full_like(value, math.nan), value[None], value.to(torch.int64), -1, "x"]


def refused(trainer: Trainer, state: dict[str, Any]) -> str:
    """Returns how a state is refused; empty if it is taken over."""
    try:
        trainer.load_state_dict(state)
    except UserError as error:
        return error.message if error.exit_code is ExitCode.BAD_CHECKPOINT else repr(error.exit_code)
    return ""


@pytest.mark.parametrize("name", MADE)
def test_no_state_ends_in_anything_but_one_line(name: str) -> None:
    """Any missing or changed value of a state is accepted or an error of one line."""
    trainer = MADE[name]()
    state = trainer.state_dict()
    cases = [(path, value) for path, found in leaves(state) for value in nonsense(path, found)]
    assert len(cases) > 200
    told = {(path, str(value)): refused(trainer, changed(state, path, value)) for path, value in cases}
    assert [case for case, message in told.items() if "does not fit the run file: " not in message] == []
    assert [message for message in told.values() if "\n" in message] == []


@pytest.mark.parametrize("name", MADE)
def test_a_state_of_another_run_is_looked_at_alike(name: str) -> None:
    """An initial state with non-finite weights is refused."""
    trainer = MADE[name]()
    state = trainer.state_dict()
    networks = state["model"]["networks" if name == "sac" else "network"]
    first = next(iter(networks))
    networks[first] = torch.full_like(networks[first], math.nan)
    with pytest.raises(UserError, match=f"{first} holds NaN or infinite values; restore") as caught:
        trainer.load_initial_state(state)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


@pytest.mark.parametrize("state", [None, 5, [], "text", {}])
def test_a_state_that_is_none_is_told(state: Any) -> None:
    """An object that is no state is refused."""
    trainer = MADE["sac"]()
    with pytest.raises(UserError, match="does not fit the run file: "):
        trainer.load_state_dict(state)


def test_more_steps_cannot_be_owed_for_than_there_were() -> None:
    """A debt larger than the number of steps is refused."""
    trainer = MADE["sac"]()
    state = trainer.state_dict()
    with pytest.raises(UserError, match=r"unpaid_steps is 1e\+300, more than the 0 trained steps"):
        trainer.load_state_dict({**state, "debt": {"unpaid_steps": 1e300}})


def test_a_normalizer_divides_by_something() -> None:
    """A normalizer with a standard deviation of 0 is refused."""
    trainer = MADE["sac"]()
    state = trainer.state_dict()
    for name, value in state["model"]["networks"].items():
        if name.endswith("normalizer.std"):
            value.zero_()
    with pytest.raises(UserError, match="standard deviation that is not positive"):
        trainer.load_state_dict(state)
