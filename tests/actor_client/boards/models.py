"""Exported models for games, with probabilities that do not depend on the position."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from actor_client.boards.positions import Game

FORBIDDEN = 1e4


def write_model(
    path: Path, game: Game, likes: Mapping[int, float] | None = None, *, output: str = "discrete_log_probs"
) -> Path:
    """Writes a model whose moves have logits of 0, except those of `likes`.

    Args:
        path: The file.
        game: The game.
        likes: Logits by the number of the move.
        output: Name of the log-probabilities inside of the graph.
    """
    logits = np.zeros(game.moves, np.float32)
    for number, logit in (likes or {}).items():
        logits[number] = logit
    constants = {"logits": logits, "one": np.float32(1), "forbidden": np.float32(FORBIDDEN)}
    nodes = [
        helper.make_node("Sub", ["action_masks", "one"], ["missing"]),
        helper.make_node("Mul", ["missing", "forbidden"], ["penalty"]),
        helper.make_node("Add", ["penalty", "logits"], ["allowed"]),
        helper.make_node("Flatten", ["obs_0"], ["flat"]),
        helper.make_node("ReduceSum", ["flat"], ["sum"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Add", ["allowed", "nothing"], ["scored"]),
        helper.make_node("LogSoftmax", ["scored"], [output], axis=1),
        helper.make_node("ArgMax", [output], ["deterministic_discrete_actions"], axis=1, keepdims=1),
    ]
    constants["zero"] = np.float32(0)
    shape: list[str | int | None] = ["batch", *game.observation.shape]
    graph = helper.make_graph(
        nodes,
        "model",
        [
            helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("action_masks", TensorProto.FLOAT, ["batch", game.moves]),
        ],
        [helper.make_tensor_value_info("deterministic_discrete_actions", TensorProto.INT64, ["batch", 1])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7)
    path.write_bytes(model.SerializeToString())
    return path
