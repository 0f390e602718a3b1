"""Tests the model that a training leaves for Unity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as untyped_runtime
import pytest
from rollcast.enums import ObservationKind, ObservationRole
from rollcast.specs import ActionSpec, BehaviorSpec

from learner.shared.runfolder.runfolder import open_run_folder
from learner.shared.runfolder.store import CheckpointStore
from learner.shared.settings.network import MemorySettings, NetworkSettings
from learner.training.export.card import Origin
from learner.training.export.unity import render_unity
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from tests.learner.training.export.unity_behaviors import TRAINED, examples, vector
from tests.learner.training.trainers.grouped import start
from tests.learner.training.trainers.started import feed, make
from tests.learner.training.trainers.synthetic import SyntheticActor

onnxruntime: Any = untyped_runtime  # it has no types
FLOAT, INT64 = "tensor(float)", "tensor(int64)"
OPERATORS = {
    "Add", "ArgMax", "Clip", "Concat", "Constant", "Conv", "Div", "Exp", "Flatten", "Gemm", "Identity", "LeakyRelu",
    "Log", "LogSoftmax", "MaxPool", "Mul", "Multinomial", "RandomNormalLike", "Relu", "Sigmoid", "Split", "Sub", "Tanh",
}  # fmt: skip
"""All are read by Barracuda 1.3 and 2.0, the importers of ML-Agents' packages 2.x, and by Sentis, that of 3.x."""
OF_CONDITIONED = {"MatMul", "Pow", "ReduceMean", "Reshape", "Sqrt"}
"""Of hyper-networks: weights that differ from row to row need a product in three axes, and the norm, which has no operator
of its own in opset 9, means and roots. Both importers read them."""
OF_ATTENTION = OF_CONDITIONED | {"Cast", "Less", "ReduceSum", "Softmax", "Transpose"}
"""Of attention, besides: heads are split and joined, and padding is found by comparison. Both importers read them, too."""


OF_MEMORY = {"MatMul", "Squeeze", "Unsqueeze"}
"""Of an LSTM, besides: its gates are plain products, and Unity's memory has an axis more."""
HALLWAY = BehaviorSpec("Hallway", (vector(105), vector(3, "symbol")), ActionSpec(0, (5,)))
"""The example scene whose agents must remember."""


def extra_operators(spec: BehaviorSpec) -> set[str]:
    """Returns the operators that only lists of entities and goals need."""
    attends = any(observation.kind is ObservationKind.ENTITIES for observation in spec.observations)
    conditioned = any(observation.role is ObservationRole.GOAL for observation in spec.observations)
    return (OF_ATTENTION if attends else set()) | (OF_CONDITIONED if conditioned else set())


def described(items: Any) -> list[tuple[str, str, list[Any]]]:
    """Returns name, type and shape of each input or output, in order."""
    return [(item.name, item.type, item.shape) for item in items]


def expected(spec: BehaviorSpec, memory: int = 0) -> tuple[list[Any], list[Any]]:
    """Returns the inputs and outputs that the format has for a behavior."""
    axes, branches = spec.action.continuous_size, list(spec.action.discrete_branches)
    inputs = [(f"obs_{place}", FLOAT, ["batch", *each.shape]) for place, each in enumerate(spec.observations)]
    outputs: list[Any] = [("version_number", FLOAT, [1]), ("memory_size", FLOAT, [1])]
    if axes:
        outputs.append(("continuous_actions", FLOAT, ["batch", axes]))
        outputs.append(("continuous_action_output_shape", FLOAT, [1]))
        outputs.append(("deterministic_continuous_actions", FLOAT, ["batch", axes]))
    if branches:
        inputs.append(("action_masks", FLOAT, ["batch", sum(branches)]))
        outputs.append(("discrete_actions", INT64, ["batch", len(branches)]))
        outputs.append(("discrete_action_output_shape", FLOAT, [1, len(branches)]))
        outputs.append(("deterministic_discrete_actions", INT64, ["batch", len(branches)]))
    if memory:
        inputs.append(("recurrent_in", FLOAT, ["batch", 1, memory]))
        outputs.append(("recurrent_out", FLOAT, ["batch", 1, memory]))
    return inputs, outputs


def constants(spec: BehaviorSpec, memory: int = 0) -> dict[str, Any]:
    """Returns the outputs that do not depend on the inputs."""
    found: dict[str, Any] = {"version_number": [3.0], "memory_size": [float(memory)]}
    if spec.action.continuous_size:
        found["continuous_action_output_shape"] = [float(spec.action.continuous_size)]
    if spec.action.discrete_branches:
        found["discrete_action_output_shape"] = [[float(size) for size in spec.action.discrete_branches]]
    return found


def run(session: Any, feed_of: dict[str, Any]) -> dict[str, Any]:
    """Runs a model; its outputs by name."""
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, feed_of), strict=True))


@pytest.mark.parametrize("spec", [*examples().values(), *TRAINED.values()], ids=[*examples(), *TRAINED])
def test_the_models_of_the_example_scenes(spec: BehaviorSpec) -> None:
    """Models have exactly the inputs, outputs, types and constants that the packages read."""
    payload = render_unity(PolicyNetwork(spec, NetworkSettings(hidden_units=8)))
    session = onnxruntime.InferenceSession(payload)
    inputs, outputs = expected(spec)
    assert described(session.get_inputs()) == inputs
    assert described(session.get_outputs()) == outputs
    zeros = {name: np.zeros([2, *shape[1:]], np.float32) for name, _, shape in inputs}
    if spec.action.discrete_branches:
        zeros["action_masks"] += 1.0
    found = run(session, zeros)
    assert {name: found[name].tolist() for name in constants(spec)} == constants(spec)
    model = onnx.load_model_from_string(payload)
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 9)]
    assert 4 <= model.ir_version <= 6
    assert {node.op_type for node in model.graph.node} <= OPERATORS | extra_operators(spec)


@pytest.mark.parametrize("spec", [HALLWAY, examples()["Crawler"], TRAINED["hybrid"]], ids=lambda spec: spec.name)
def test_models_with_memory(spec: BehaviorSpec) -> None:
    """Models with memory have three axes, the size, and only operators of plain layers."""
    settings = NetworkSettings(hidden_units=8, memory=MemorySettings(memory_size=128))
    network = PolicyNetwork(spec, settings)
    payload = render_unity(network)
    session = onnxruntime.InferenceSession(payload)
    inputs, outputs = expected(spec, 128)
    assert described(session.get_inputs()) == inputs
    assert described(session.get_outputs()) == outputs
    model = onnx.load_model_from_string(payload)
    assert {node.op_type for node in model.graph.node} <= OPERATORS | OF_MEMORY | extra_operators(spec)
    zeros = {name: np.zeros([2, *shape[1:]], np.float32) for name, _, shape in inputs}
    found = run(session, zeros)
    assert {name: found[name].tolist() for name in constants(spec, 128)} == constants(spec, 128)


def trained(kind: str, spec: BehaviorSpec) -> ActorCriticTrainer:
    """Returns a trainer after two updates: of ppo, or of poca with groups and a memory."""
    if kind == "ppo":
        bench, trainer = make(spec)
        feed(bench, SyntheticActor(bench), 2, trainer)
        return trainer
    bench, of_groups, play = start(spec, recurrent=True)
    for _ in range(2):
        bench.put(play())
        of_groups.advance()
    return of_groups


LEFT = [("ppo", "continuous"), ("ppo", "discrete"), ("poca with memory", "hybrid")]


@pytest.mark.parametrize(("kind", "name"), LEFT, ids=lambda part: part)
def test_a_training_leaves_the_model_of_its_policy(kind: str, name: str, tmp_path: Path) -> None:
    """The final model of a run is that of the trained policy."""
    spec = TRAINED[name]
    trainer = trained(kind, spec)
    assert trainer.version == 2
    with open_run_folder(tmp_path, "run") as folder:
        store = CheckpointStore(folder)
        store.save_behavior(
            spec.name, step=7, state=trainer.state_dict(), reward=None, keep_checkpoints=5, export=trainer.export_model
        )
        model = store.finish_behavior(spec.name)
    assert model == folder.path / f"{spec.name}.onnx"
    assert model.read_bytes() == render_unity(trainer.policy, origin=Origin(step=trainer.get_step))
