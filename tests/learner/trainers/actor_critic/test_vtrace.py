"""Targets of experience that several versions acted, against loops over segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.trajectories import Chunk

from learner.networks.distributions import branch_offsets
from learner.trainers.actor_critic.loss import Batch
from learner.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.trainers.appo.trainer import APPOTrainer
from learner.trainers.impala.trainer import IMPALATrainer
from tests.learner.trainers.loss_cases import log_prob
from tests.learner.trainers.segments import Array, Segments, loop
from tests.learner.trainers.started import feed, make_kind
from tests.learner.trainers.synthetic import HYBRID, SyntheticActor

GAMMA, LAMBD, RHO_BAR, C_BAR = 0.95, 0.9, 0.98, 0.9
LENGTHS = [7, 1, 20, 3, 2, 1, 12, 16]
HYPER = {"lambd": LAMBD, "rho_bar": RHO_BAR, "c_bar": C_BAR, "learning_rate": 0.02}


def with_old_steps(kind: type[ActorCriticTrainer], name: str, ratio: str) -> tuple[ActorCriticTrainer, Chunk]:
    """A trainer at version 2 with a buffer of steps of version 0, and their chunk."""
    bench, trainer = make_kind(
        kind,
        name,
        HYBRID,
        hyper={**HYPER, "ratio": ratio},
        network={"normalize": False},
        reward_signals={"extrinsic": {"gamma": GAMMA, "strength": 0.5}},
        threaded=True,
    )
    actor = SyntheticActor(bench)
    old = actor.chunk(LENGTHS)
    feed(bench, actor, 2, trainer)
    trainer.update_buffer.clear()
    bench.put(old)
    trainer.collect()
    return trainer, old


@torch.no_grad()
def as_segments(trainer: ActorCriticTrainer, chunk: Chunk) -> Segments:
    """What the buffer holds, under the present networks, in the form of the loops."""
    columns: dict[str, NDArray[Any]] = dict(chunk.columns)
    final_rows = np.cumsum(LENGTHS)
    names = [observation.name for observation in HYBRID.observations]
    rows = [np.insert(columns[f"obs/{name}"], final_rows, columns[f"final_obs/{name}"], axis=0) for name in names]
    values = trainer.network.values([torch.from_numpy(part) for part in rows]).double().numpy()
    output = trainer.policy([torch.from_numpy(columns[f"obs/{name}"]) for name in names])
    batch = Batch(
        torch.from_numpy(columns["continuous_action"]),
        torch.from_numpy(columns["discrete_action"]).long() + branch_offsets(HYBRID.action.discrete_branches),
        *(torch.empty(0) for _ in range(3)),
    )
    now = log_prob(output, batch).sum(1)
    log_ratio = now.double().numpy() - columns["log_prob"].astype(np.float64).sum(1)
    return Segments(
        lengths=tuple(LENGTHS),
        ends=(columns["end"] == SegmentEnd.TERMINATED)[:, None],
        rewards=np.insert(0.5 * columns["reward"].astype(np.float64), final_rows, 0.0)[:, None],
        values=values,
        log_ratio=np.insert(log_ratio, final_rows, 0.0),
        gamma=np.array([GAMMA]),
    )


@pytest.mark.parametrize("at_once", [5, 4096])
@pytest.mark.parametrize("ratio", ["joint", "per_action"])
@pytest.mark.parametrize(("kind", "name"), [(APPOTrainer, "appo"), (IMPALATrainer, "impala")])
def test_an_update_sees_what_a_loop_over_segments_computes(
    kind: type[ActorCriticTrainer], name: str, ratio: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets weigh each step by its whole action's ratio; losses get the recorded log-probabilities; appo normalizes."""
    monkeypatch.setattr("learner.trainers.actor_critic.experience._ROWS_AT_ONCE", at_once)
    trainer, chunk = with_old_steps(kind, name, ratio)
    given = as_segments(trainer, chunk)
    assert np.abs(given.log_ratio).max() > 0.05  # two updates did move the policy
    expected = loop(given, LAMBD, RHO_BAR, C_BAR)
    plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
    experience = trainer._maker.make(plan, storage, trainer._maker.recorded(plan, storage, trainer.version))
    found = {key: experience.sources[key].values.numpy() for key in ("returns", "advantage", "log_prob")}
    np.testing.assert_allclose(_of_steps(expected.vtrace_values), found["returns"], rtol=1e-3, atol=1e-4)
    advantages = _of_steps(expected.vtrace_advantages)
    if name == "appo":
        advantages = (advantages - advantages.mean()) / advantages.std()
    np.testing.assert_allclose(advantages, found["advantage"], rtol=1e-3, atol=1e-3)
    recorded = chunk.columns["log_prob"]
    recorded = recorded.sum(1, keepdims=True) if ratio == "joint" else recorded
    np.testing.assert_allclose(recorded, found["log_prob"], rtol=1e-5, atol=1e-6)
    assert set(experience.lag.tolist()) == {2}


def _of_steps(numbers: Array) -> Array:
    """Leaves final rows out."""
    return np.delete(numbers, np.cumsum(np.array(LENGTHS) + 1) - 1, axis=0)
