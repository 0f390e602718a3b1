"""Updates of trainers in the processes of a group, all of which get the same chunks."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.link.mesh import Mesh
from learner.shared.exits import ExitCode
from learner.training.optimizers.ranks import LostRankError, end_rank, join_ranks
from learner.training.optimizers.reduce import Reduce, SingleLearner
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.registry import build
from tests.learner.training.trainers.in_process import make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor

Updates = tuple[dict[str, Any], BehaviorSpec, list[list[int]], dict[str, Any]]
"""Settings, behavior, lengths of the segments of each chunk, and further columns of each chunk."""


def trained(reduce: Reduce, updates: Updates, state: dict[str, Any] | None = None) -> ActorCriticTrainer:
    """Returns a trainer after one turn for each chunk."""
    settings, spec, chunks, columns = updates
    bench = make_bench(settings, spec)
    trainer = build(bench.context(reduce=reduce))
    assert isinstance(trainer, ActorCriticTrainer)
    if state is not None:
        trainer.load_state_dict(state)
    trainer.start()
    actor = SyntheticActor(bench)
    for lengths in chunks:
        own = {"env": np.arange(len(lengths), dtype=np.uint32), "agent": np.zeros(len(lengths), np.uint64)}
        bench.put(actor.chunk(lengths, columns={**own, **columns}))
        trainer.advance()
    return trainer


def vector_of(trainer: ActorCriticTrainer) -> Tensor:
    """Returns everything that learns as one vector."""
    state = trainer.model_state()
    found = [trainer.optimizer.parameters.double(), trainer.value_scale.scale]
    found += [value.double().flatten() for value in state["network"].values()]
    for signal in state["signals"].values():
        found += [value.double().flatten() for value in signal["network"].values()]
    return torch.cat([each.flatten() for each in found])


def pairs(ranks: int) -> list[dict[int, socket.socket]]:
    """Returns the sockets of each rank to the others, all connected."""
    found: list[dict[int, socket.socket]] = [{} for _ in range(ranks)]
    for rank in range(ranks):
        for other in range(rank):
            found[rank][other], found[other][rank] = socket.socketpair()
    return found


def _run(folder: Path, rank: int, peers: dict[int, socket.socket], updates: Updates) -> None:
    torch.set_num_threads(1)
    reduce = join_ranks(torch.device("cpu"), 300.0, Mesh(rank, peers))
    trainer = trained(reduce, updates)
    torch.save((vector_of(trainer), trainer.version, dict(trainer.numbers)), folder / f"{rank}.pt")
    end_rank(0)


def lose(folder: Path, rank: int, peers: dict[int, socket.socket], updates: Updates) -> None:
    """Lets the last rank end in the middle of the work of all, and keeps the error of the others."""
    del updates
    torch.set_num_threads(1)
    reduce = join_ranks(torch.device("cpu"), 300.0, Mesh(rank, peers))
    assert reduce.broadcast(b"state" if rank == 0 else b"") == b"state"
    if rank == len(peers):
        torch.save(int(ExitCode.TRAINER_DIED), folder / f"{rank}.pt")
        os._exit(0)  # as if it were killed
    try:
        reduce.sums(torch.ones(3))
    except LostRankError as error:
        torch.save(int(error.exit_code), folder / f"{rank}.pt")
    end_rank(0)


def in_ranks(folder: Path, ranks: int, updates: Updates, run: Callable[..., None] = _run) -> list[Any]:
    """Returns vector, version and numbers of the trainer of each rank."""
    folder.mkdir()
    context = multiprocessing.get_context("spawn")
    sockets = pairs(ranks)
    processes = [context.Process(target=run, args=(folder, rank, sockets[rank], updates)) for rank in range(ranks)]
    for process, own in zip(processes, sockets, strict=True):
        process.start()
        for handle in own.values():
            handle.close()
    for process in processes:
        process.join(300.0)
    assert [process.exitcode for process in processes] == [0] * ranks
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(ranks)]


def alone(updates: Updates) -> tuple[Tensor, int, dict[str, float]]:
    """Returns the same of a single learner."""
    trainer = trained(SingleLearner(), updates)
    return vector_of(trainer), trainer.version, dict(trainer.numbers)


PPO = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 60, "batch_size": 64, "num_epoch": 1},
    "network_settings": {"hidden_units": 8, "normalize": True},
    "time_horizon": 20,
}
UNEQUAL: Updates = (PPO, CONTINUOUS, [[20, 5, 18, 3, 17]], {})
