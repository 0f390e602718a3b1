"""Started trainers without the service."""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from rollcast.specs import BehaviorSpec

from learner.training.networks.value import ActorCritic
from learner.training.trainers import registry
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.appo.trainer import APPOTrainer
from learner.training.trainers.impala.trainer import IMPALATrainer
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.rl import RLTrainer
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.recurrent import CUT, TERMINATED, RecurrentActor
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor

Kind = TypeVar("Kind", bound=ActorCriticTrainer)
KINDS: Mapping[str, type[ActorCriticTrainer]] = MappingProxyType(
    {"ppo": PPOTrainer, "appo": APPOTrainer, "impala": IMPALATrainer}
)
"""The trainers of this family, by the names that run files give them."""


def make(
    spec: BehaviorSpec = CONTINUOUS, service: dict[str, Any] | None = None, **changes: Any
) -> tuple[Bench, PPOTrainer]:
    """A bench and a started PPO trainer that updates after 60 steps."""
    return make_kind(PPOTrainer, "ppo", spec, service, **changes)


def make_kind(
    kind: type[Kind],
    trainer_type: str,
    spec: BehaviorSpec = CONTINUOUS,
    service: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[Bench, Kind]:
    """A bench and a started trainer of any kind that updates after 60 steps."""
    hyper = {"buffer_size": 60, "batch_size": 16, "num_epoch": 2, "learning_rate": 1e-3, **changes.pop("hyper", {})}
    network = {"hidden_units": 16, "normalize": True, **changes.pop("network", {})}
    settings = {
        "trainer_type": trainer_type,
        "hyperparameters": hyper,
        "network_settings": network,
        "time_horizon": 20,
        "max_steps": 100_000,
        **changes,
    }
    bench = make_bench(settings, spec, **(service or {}))
    trainer = kind(bench.context())
    trainer.start()
    return bench, trainer


def single_network(trainer: ActorCriticTrainer) -> ActorCritic:
    """Returns the network of a trainer whose critic sees one agent."""
    if not isinstance(trainer.network, ActorCritic):
        raise TypeError
    return trainer.network


def feed(bench: Bench, actor: SyntheticActor, updates: int, trainer: ActorCriticTrainer) -> None:
    """Sends chunks of 20 steps until so many updates more are done."""
    end = trainer.version + updates
    while trainer.version < end:
        bench.put(actor.chunk([10, 7, 3]))
        trainer.advance()


def trained(bench: Bench, chunks: int = 5) -> RLTrainer:
    """Returns a trainer of any kind after some updates."""
    trainer = registry.build(bench.context())
    assert isinstance(trainer, RLTrainer)
    trainer.start()
    actor = RecurrentActor(bench) if bench.behavior.memory_stride else SyntheticActor(bench)
    for _ in range(chunks):
        played = [(0, 10, CUT), (1, 7, TERMINATED), (0, 3, TERMINATED)]
        bench.put(actor.play(played) if isinstance(actor, RecurrentActor) else actor.chunk([10, 7, 3]))
        while trainer.advance():
            pass
    trainer.publish_present()
    assert trainer.version > 0
    return trainer


def uninterrupted_and_resumed(**changes: Any) -> list[PPOTrainer]:
    """Returns two trainers after five equal updates, the second of which was saved and loaded.

    That one was saved to a file and loaded by one that had other random numbers.
    """
    trainers = []
    for interrupted in (False, True):
        bench, trainer = make(**changes)
        actor = SyntheticActor(bench)
        for update in range(5):
            if interrupted and update == 2:
                file = io.BytesIO()
                torch.save(trainer.state_dict(), file)
                file.seek(0)
                trainer = PPOTrainer(bench.context(seed=99))
                trainer.load_state_dict(torch.load(file, weights_only=True))
                trainer.start()
            bench.put(actor.chunk([20, 20, 20, 10]))
            trainer.advance()
        trainers.append(trainer)
    return trainers
