"""Tests residual towers for board games."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.shared.exits import UserError
from learner.shared.settings.network import NetworkSettings, TowerSettings
from learner.training.export.check import open_session
from learner.training.export.describe import describe
from learner.training.export.onnx import PolicyExporter
from learner.training.export.unity import render_unity
from learner.training.networks.initializers import Initializer
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.tower import Board, BoardPlanesHead, BoardValueHead
from tests.learner.training.networks.specs import entities, vector

TOWER = {"depth": 2, "width": 6, "policy_planes": 3, "value_planes": 2}
SETTINGS = NetworkSettings.model_validate({"tower": TOWER, "normalize": True})
CONV = NetworkSettings.model_validate({"tower": TOWER | {"policy_head": "conv"}, "normalize": True})
HEADS = {"linear": SETTINGS, "conv": CONV}
ROWS = 7


def board(
    name: str = "board", shape: tuple[int, ...] = (4, 3, 5), *, layout: str = "CHW", **changes: Any
) -> ObservationSpec:
    """Returns planes of a board."""
    known: dict[str, Any] = {"dtype": np.dtype(np.float32)}
    return ObservationSpec(
        name, shape=shape, kind=ObservationKind.IMAGE, layout=ImageLayout[layout], **{**known, **changes}
    )


SPECS = {
    "a board": (board(),),
    "planes last, of bytes": (board(shape=(3, 5, 4), layout="HWC", dtype=np.dtype(np.uint8), scale=2.0),),
    "two boards": (board(), board("history", (3, 5, 2), layout="HWC")),
    "pieces in hand": (board(), vector("hand", 3)),
}


def behavior(observations: tuple[ObservationSpec, ...], continuous: int = 0) -> BehaviorSpec:
    """Returns a behavior with fifteen fields and a pass."""
    return BehaviorSpec("Game", observations, ActionSpec(continuous, (16,)))


def seen(spec: BehaviorSpec) -> list[torch.Tensor]:
    """Returns random observations in wire types."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for observation in spec.observations:
        values = torch.randint(0, 3, (ROWS, *observation.shape), generator=generator)
        found.append(values.to(torch.from_numpy(np.zeros(0, observation.dtype)).dtype))
    return found


def masks() -> torch.Tensor:
    """Returns random masks."""
    allowed = torch.randint(0, 2, (ROWS, 16), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    allowed[:, 4] = 1
    return allowed


@pytest.mark.parametrize("settings", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("observations", SPECS.values(), ids=SPECS)
def test_a_policy_in_onnx_equals_the_network(
    observations: tuple[ObservationSpec, ...], settings: NetworkSettings
) -> None:
    """After changing every parameter, the actors' and Unity's ONNX files equal the network.

    Log-probabilities are normalized over the allowed moves.
    """
    spec = behavior(observations)
    network = PolicyNetwork(spec, settings)
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    exporter.verify()
    feed = {f"obs_{place}": values.numpy() for place, values in enumerate(seen(spec))}
    expected = network(seen(spec), masks()).logits
    assert expected is not None
    chances = expected.detach().exp()
    torch.testing.assert_close(chances.sum(1), torch.ones(ROWS))
    assert float(chances[masks() == 0].max()) < 1e-30
    session = open_session(exporter.render(network.state_dict()))
    (logits,) = session.run(["logits"], feed | {"action_masks": masks().float().numpy()})
    np.testing.assert_allclose(logits, expected.detach(), rtol=1e-4, atol=1e-5)
    unity = {name: values.astype(np.float32) for name, values in (feed | {"action_masks": masks().numpy()}).items()}
    for place, observation in enumerate(spec.observations):
        if observation.scale:
            unity[f"obs_{place}"] /= observation.scale  # Unity's pictures are from 0 to 1
    (moves,) = open_session(render_unity(network)).run(["deterministic_discrete_actions"], unity)
    assert moves[:, 0].tolist() == expected.argmax(1).tolist()


def test_a_conv_head_scores_a_move_by_its_square() -> None:
    """Choice ``k * H * W + t`` depends on square ``t`` alone, choices after the planes on all; each branch has both."""
    squares = 3 * 5
    head = BoardPlanesHead(Board(6, 3, 5), (2 * squares, squares + 1), Initializer("kaiming"))
    board = torch.randn(1, 6, 3, 5)
    changed = board.clone()
    changed[0, :, 1, 3] += 1.0
    differs = (head(changed.flatten(1), None) - head(board.flatten(1), None)).detach()[0]
    first, second = differs.split([2 * squares, squares + 1])
    # A branch is normalized: what is left alone shifts by the same amount as all others.
    assert _apart(first) == [8, squares + 8]
    assert _apart(second) == [8, squares]


def _apart(differences: torch.Tensor) -> list[int]:
    """Returns where differences are not the usual one."""
    usual = differences.median()
    return [index for index, value in enumerate(differences.tolist()) if abs(value - float(usual)) > 1e-5]


@pytest.mark.parametrize("choices", [(14,), (16, 2)])
def test_a_conv_head_needs_planes_of_moves(choices: tuple[int, ...]) -> None:
    """Fewer choices than squares are refused with the next step."""
    spec = BehaviorSpec("Game", SPECS["a board"], ActionSpec(0, choices))
    with pytest.raises(UserError, match=f"a branch of {min(choices)} choices has no plane of 3x5 squares: set it to"):
        PolicyNetwork(spec, CONV)


@pytest.mark.parametrize("units", [None, 5])
def test_a_value_head_may_have_a_layer(units: int | None) -> None:
    """Values have one column for each signal, and every weight of the head has a part in them."""
    tower = TowerSettings(width=6, value_planes=2, value_units=units)
    head = BoardValueHead(Board(6, 3, 5), tower, 2, Initializer("kaiming", torch.Generator().manual_seed(1)))
    values = head(torch.randn(ROWS, 6 * 3 * 5, generator=torch.Generator().manual_seed(2)))
    assert values.shape == (ROWS, 2)
    values.square().sum().backward()
    widths = sorted(tuple(part.weight.shape) for part in head.modules() if isinstance(part, torch.nn.Linear))
    assert widths == ([(2, 30)] if units is None else [(2, 5), (5, 30)])
    assert all(part.grad is not None and bool(part.grad.abs().sum() > 0) for part in head.parameters())


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        ((vector("state", 9),), "none of the observations state consists of board planes"),
        ((board(), board("other", (1, 3, 3))), "boards have the sizes 3x3 and 3x5: all must have the same size"),
        ((board(), entities()), "'crowd' is a list of entities"),
    ],
)
def test_what_is_no_board_is_refused(observations: tuple[ObservationSpec, ...], message: str) -> None:
    """A board with a wrong shape is refused with the next step."""
    with pytest.raises(UserError, match=message):
        PolicyNetwork(behavior(observations), SETTINGS)
