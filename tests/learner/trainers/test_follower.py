"""Tests that ranks take, train and drop the same, with parts of the experience."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk

from learner.link.turns import Turn, TurnKind
from learner.trainers.follower import Follower
from learner.trainers.registry import build
from tests.learner.optimizers.rank_updates import vector_of
from tests.learner.trainers.grouped import SPAN, Acted, GroupActor
from tests.learner.trainers.in_process import Bench, make_bench
from tests.learner.trainers.recurrent import CUT, TERMINATED, TRUNCATED, RecurrentActor
from tests.learner.trainers.synthetic import BRANCHES, CONTINUOUS, SyntheticActor
from tests.learner.trainers.thread_ranks import WAIT_SECONDS, ThreadRanks, with_roles

PPO: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 60, "batch_size": 100, "num_epoch": 2},
    "network_settings": {"hidden_units": 8, "normalize": True},
    "time_horizon": 20,
    "max_steps": 10_000,
}
LENGTHS = [[20, 5, 18, 3], [17, 20], [1], [20, 20, 20, 20, 3]]


Chunks = Callable[[Bench], Iterator[Chunk]]


def separate(bench: Bench) -> Iterator[Chunk]:
    """Yields chunks of agents without memory or mates; the second and the last complete a buffer."""
    actor = SyntheticActor(bench)
    for lengths in LENGTHS:
        yield actor.chunk(
            lengths,
            columns={"env": np.arange(len(lengths), dtype=np.uint32), "agent": np.zeros(len(lengths), np.uint64)},
        )


def remembering(bench: Bench) -> Iterator[Chunk]:
    """Yields chunks of agents with memory, whose episodes go on from chunk to chunk."""
    actor = RecurrentActor(bench)
    for ends in ((CUT, CUT, TERMINATED), (CUT, TERMINATED, CUT), (TRUNCATED, CUT, CUT), (CUT, CUT, CUT)):
        yield actor.play([(agent, 11 + agent, end) for agent, end in enumerate(ends, 1)])


def grouped(bench: Bench) -> Iterator[Chunk]:
    """Yields chunks of groups; some have more mates than others."""
    actor = GroupActor(bench)
    for span in (SPAN, SPAN, SPAN[3:], (*SPAN, Acted(8, 10, 0, 6))):
        yield actor.play(span)


def play(settings: dict[str, Any], spec: BehaviorSpec, ranks: int, chunks: Chunks = separate) -> ThreadRanks:
    """Returns ranks that have trained on all chunks, in two updates."""
    bench = make_bench(settings, spec)
    run = ThreadRanks(bench, ranks)
    wait(lambda: bench.published.progress, run)
    for index, chunk in enumerate(chunks(bench)):
        bench.put(with_roles(chunk, spec, bench.behavior.declared.memory_size), actor_index=index % 2)
        if index in {1, 3}:
            wait(lambda: bench.published.progress[-1].version == (index + 1) // 2, run)  # noqa: B023
    run.stop()
    assert not run.errors
    return run


def wait(is_over: Any, run: ThreadRanks) -> None:
    """Waits for a condition."""
    end = time.monotonic() + WAIT_SECONDS
    while not is_over():
        assert not run.errors
        assert time.monotonic() < end
        time.sleep(0.01)


MEMORY = {"memory": {"memory_size": 8, "sequence_length": 8}}
CASES = {
    "continuous": (PPO, CONTINUOUS, separate),
    "branches": (PPO, BRANCHES, separate),
    "appo": ({**PPO, "trainer_type": "appo"}, CONTINUOUS, separate),
    "limited": (
        {**PPO, "hyperparameters": {**PPO["hyperparameters"], "target_kl": 1e-4, "max_grad_norm": 0.5}},
        CONTINUOUS,
        separate,
    ),
    "learned rewards": ({**PPO, "reward_signals": {"extrinsic": {}, "rnd": {}, "curiosity": {}}}, CONTINUOUS, separate),
    "memory": ({**PPO, "network_settings": {"hidden_units": 8, **MEMORY}}, CONTINUOUS, remembering),
    "groups": ({**PPO, "trainer_type": "poca"}, CONTINUOUS, grouped),
}


@pytest.mark.parametrize("case", list(CASES))
def test_ranks_take_and_train_the_same(case: str) -> None:
    """Two and three ranks end with the parameters of one, and each has counted every step."""
    settings, spec, chunks = CASES[case]
    alone = play(settings, spec, 1, chunks).trainers[0]
    for ranks in (2, 3):
        found = play(settings, spec, ranks, chunks).trainers
        for trainer in found.values():
            assert torch.equal(vector_of(trainer), vector_of(found[0]))
            # The biases of attention's keys have no gradient but rounding, which Adam makes a step of.
            assert torch.allclose(
                vector_of(trainer), vector_of(alone), rtol=0.0, atol=3e-5 if case == "groups" else 1e-5
            )
            assert (trainer.version, trainer.steps_trained, trainer.get_step) == (
                2,
                alone.steps_trained,
                alone.get_step,
            )
        assert sum(found[0].numbers[f"rank_steps/{rank}"] for rank in range(ranks)) == found[0].numbers["update_steps"]
        for name in ("policy_loss", "approx_kl", "grad_norm", "mean_lag", "update_epochs"):
            assert found[0].numbers[name] == pytest.approx(alone.numbers[name], rel=1e-3, abs=1e-4)


def test_a_missing_turn_is_an_error() -> None:
    """A rank that lost a turn would train something else."""
    bench = make_bench(PPO, CONTINUOUS)
    follower = Follower(
        bench.link, lambda declared, queue: build(bench.context(queue=queue)), lambda *_: bench.queue, print
    )
    with pytest.raises(RuntimeError, match="turn 2 came in the place of turn 1"):
        follower.play(Turn(2, 0, TurnKind.UPDATE))
