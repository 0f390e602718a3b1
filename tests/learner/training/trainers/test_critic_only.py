"""Tests trainers whose critics see observations that the policy does not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from learner.shared.exits import ExitCode, UserError
from learner.training.matches.frozen_trainer import FrozenTrainer
from learner.training.trainers import registry
from learner.training.trainers.memory_estimate import require_initial_fit
from learner.training.trainers.rl import RLTrainer
from tests.learner.training.networks.specs import behavior, entities, image, vector
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.started import trained, uninterrupted_and_resumed

SPEC = behavior(vector("secret", 3), vector("near", 5), entities("crowd"), image("view", (20, 20, 3)), continuous=2)
UNREAD = ("secret", "view")
TWINS = behavior(vector("left", 3), vector("right", 3), continuous=1)
HYPER: dict[str, dict[str, Any]] = {"sac": {"buffer_size": 200, "batch_size": 16, "steps_per_update": 4}}
MEMORY = {"memory": {"memory_size": 6, "sequence_length": 4}}
TRAINERS = sorted(registry.own_trainers())


def bench_of(trainer_type: str, critic_only: tuple[str, ...] = UNREAD, spec: Any = SPEC, **network: Any) -> Bench:
    """Returns a behavior with that trainer."""
    return make_bench(
        {
            "trainer_type": trainer_type,
            "hyperparameters": HYPER.get(trainer_type, {"buffer_size": 60, "batch_size": 16, "num_epoch": 1}),
            "network_settings": {"hidden_units": 8, "normalize": True, "critic_only": critic_only, **network},
            "reward_signals": {"extrinsic": {}, "curiosity": {"network_settings": {"hidden_units": 8}}},
            "time_horizon": 20,
        },
        spec,
    )


def normalizers(state: dict[str, Any]) -> dict[str, list[int]]:
    """Returns the sizes of the normalizers of policy, critics and copies."""
    networks = state["model"].get("networks") or state["model"]["network"]
    found: dict[str, list[int]] = {}
    for name, value in networks.items():
        if name.endswith("normalizer.mean"):
            found.setdefault(name.partition(".")[0], []).append(len(value))
    return found


@pytest.mark.parametrize("network", [{}, MEMORY], ids=["plain", "memory"])
@pytest.mark.parametrize("trainer_type", TRAINERS)
def test_it_trains(trainer_type: str, network: dict[str, Any]) -> None:
    """The learner agrees with the actors; each network's normalizers are of what it reads and have the same statistics."""
    bench = bench_of(trainer_type, **network)
    trainer = trained(bench)
    state = trainer.state_dict()
    critics = {"critic": [3, 5]} if trainer_type != "sac" else {"critic": [3, 5], "target": [3, 5]}
    assert normalizers(state) == {"policy": [5], **critics}
    if trainer_type != "sac":
        assert trainer.numbers["log_prob_error_max"] < 1e-4
    networks = state["model"].get("networks") or state["model"]["network"]
    of_policy, of_secret, of_critic = (
        value for name, value in networks.items() if name.endswith("normalizer.mean") and not name.startswith("target")
    )
    assert torch.equal(of_policy, of_critic)
    assert (of_secret > 1).all()  # of numbers around 5
    assert not [name for name in bench.published.state if bench.published.state[name].shape == (3,)]
    statistics = bench.published.state["body.encoder.encoders.0.normalizer.mean"]
    np.testing.assert_array_equal(statistics.numpy(), of_policy.numpy())


def test_a_resumed_trainer_continues_exactly() -> None:
    """Saved and loaded, it equals one that was not interrupted."""
    one, other = uninterrupted_and_resumed(spec=TWINS, network={"critic_only": ["left"]})
    for name, value in one.network.state_dict().items():
        assert torch.equal(value, other.network.state_dict()[name]), name
    assert other.network.policy.reads == (1,)


@pytest.mark.parametrize("trainer_type", TRAINERS)
def test_another_critic_only_is_refused(trainer_type: str) -> None:
    """A state whose policy read another observation of the same shape is refused, for training and for acting."""
    state = trained(bench_of(trainer_type, ("left",), TWINS)).state_dict()
    for names in (("right",), ()):
        bench = bench_of(trainer_type, names, TWINS)
        for trainer in (registry.build(bench.context()), FrozenTrainer(bench.context(is_training=False))):
            assert isinstance(trainer, RLTrainer)
            for load in (trainer.load_state_dict, trainer.load_initial_state):
                with pytest.raises(UserError) as refused:
                    load(state)
                assert refused.value.exit_code is ExitCode.BAD_CHECKPOINT
                assert f"critic_only ['left'], but the run file has {list(names)!r}; restore" in refused.value.message
        with pytest.raises(ValueError, match="critic_only"):
            require_initial_fit(TWINS, bench.behavior.settings, state)
    same = bench_of(trainer_type, ("left",), TWINS)
    require_initial_fit(TWINS, same.behavior.settings, state)
    acting = FrozenTrainer(same.context(is_training=False))
    acting.load_state_dict(state)
    acting.start()
    assert same.published.network is not None
    assert same.published.network.reads == (1,)
