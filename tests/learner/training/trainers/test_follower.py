"""Tests that ranks take, train and drop the same, with parts of the experience."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.link.turns import Turn, TurnKind
from learner.shared.settings.service import ServiceSettings
from learner.training.curriculum.lessons import no_lessons
from learner.training.run.steering import Steering
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.follower import Follower
from learner.training.trainers.loop import ordinary_queue
from learner.training.trainers.parts import RunPart
from learner.training.trainers.registry import build
from tests.learner.training.optimizers.rank_updates import vector_of
from tests.learner.training.rewards.recorded import demonstrate
from tests.learner.training.trainers.grouped import SPAN, Acted, GroupActor
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.recurrent import CUT, TERMINATED, TRUNCATED, RecurrentActor
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, SyntheticActor
from tests.learner.training.trainers.thread_ranks import WAIT_SECONDS, ThreadRanks, with_roles

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


def play(
    settings: dict[str, Any], spec: BehaviorSpec, ranks: int, chunks: Chunks = separate, parts: Sequence[RunPart] = ()
) -> ThreadRanks:
    """Returns ranks that have trained on all chunks, in two updates."""
    bench = make_bench(settings, spec)
    run = ThreadRanks(bench, ranks, parts)
    wait(bench, lambda: bench.published.progress, run)
    for index, chunk in enumerate(chunks(bench)):
        bench.put(with_roles(chunk, spec, bench.behavior.declared.memory_size), actor_index=index % 2)
        if index in {1, 3}:
            wait(bench, lambda: bench.published.progress[-1].version == (index + 1) // 2, run)  # noqa: B023
    run.stop()
    assert not run.errors
    return run


def wait(bench: Bench, is_over: Callable[[], object], run: ThreadRanks) -> None:
    """Waits for a condition of what is published."""
    with bench.published.changed:
        assert bench.published.changed.wait_for(lambda: run.errors or is_over(), WAIT_SECONDS)
    assert not run.errors


def changed(**hyperparameters: Any) -> dict[str, Any]:
    """Returns the settings with other hyperparameters."""
    return {**PPO, "hyperparameters": {**PPO["hyperparameters"], **hyperparameters}}


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
    "one part": (changed(batch_size=168, gradient_accumulation=2), CONTINUOUS, separate),
    "learned rewards": ({**PPO, "reward_signals": {"extrinsic": {}, "rnd": {}, "curiosity": {}}}, CONTINUOUS, separate),
    "memory": ({**PPO, "network_settings": {"hidden_units": 8, **MEMORY}}, CONTINUOUS, remembering),
    "groups": ({**PPO, "trainer_type": "poca"}, CONTINUOUS, grouped),
}


def with_gradient(trainer: ActorCriticTrainer) -> Tensor:
    """Returns what learns as one vector, without the biases of attention's keys.

    A softmax does not depend on them: their gradient is rounding alone, of which Adam makes a step as large as any.
    """
    state = trainer.model_state()
    networks = [state["network"], *(signal["network"] for signal in state["signals"].values())]
    found = [value for network in networks for name, value in network.items() if not name.endswith(".key.bias")]
    return torch.cat([trainer.value_scale.scale.flatten(), *(value.double().flatten() for value in found)])


@pytest.mark.parametrize("case", list(CASES))
def test_ranks_take_and_train_the_same(case: str) -> None:
    """Two and three ranks end with the parameters of one, and each has counted every step."""
    settings, spec, chunks = CASES[case]
    alone = play(settings, spec, 1, chunks).trainers[0]
    for ranks in (2, 3):
        found = play(settings, spec, ranks, chunks).trainers
        for trainer in found.values():
            assert torch.equal(vector_of(trainer), vector_of(found[0]))
            assert torch.allclose(with_gradient(trainer), with_gradient(alone), rtol=0.0, atol=1e-5)
            assert (trainer.version, trainer.steps_trained, trainer.get_step) == (
                2,
                alone.steps_trained,
                alone.get_step,
            )
        assert sum(found[0].numbers[f"rank_steps/{rank}"] for rank in range(ranks)) == found[0].numbers["update_steps"]
        for name in ("policy_loss", "approx_kl", "grad_norm", "mean_lag", "update_epochs"):
            assert found[0].numbers[name] == pytest.approx(alone.numbers[name], rel=1e-3, abs=1e-4)


DRAWN = {
    "minibatches": changed(batch_size=16),
    "adaptive": changed(batch_size=16, learning_rate_schedule="adaptive"),
    "parts": changed(batch_size=60, gradient_accumulation=3),
    "gail": {**changed(batch_size=16), "reward_signals": {"extrinsic": {}, "gail": {"use_vail": True}}},
    "cloning": {**changed(batch_size=16), "behavioral_cloning": {}},
}


@pytest.mark.parametrize("case", list(DRAWN))
def test_ranks_that_draw_differently_stay_equal(case: str, tmp_path: Path) -> None:
    """With minibatches of some rows, ranks train others than one rank does, and have the same parameters bit by bit."""
    settings = copy.deepcopy(DRAWN[case])
    demonstrate(tmp_path / "x.demo", CONTINUOUS, [40, 24])
    for block in (settings.get("behavioral_cloning"), settings.get("reward_signals", {}).get("gail")):
        if block is not None:
            block["demo_path"] = str(tmp_path / "x.demo")
    alone = play(settings, CONTINUOUS, 1).trainers[0]
    for ranks in (2, 3):
        found = play(settings, CONTINUOUS, ranks).trainers
        assert all(torch.equal(vector_of(trainer), vector_of(found[0])) for trainer in found.values())
        assert torch.allclose(vector_of(found[0]), vector_of(alone), rtol=0.0, atol=0.2)
        assert (found[0].version, found[0].optimizer_steps) == (2, alone.optimizer_steps)
        if case == "cloning":
            assert found[0].model_state()["cloning"]["optimizer"]["steps"] > 0


def test_changed_settings_reach_every_rank() -> None:
    """Ranks of which one restores a changed setting train bit by bit as if all had started with it."""
    started = play(changed(learning_rate=0.05), CONTINUOUS, 2).trainers[0]
    steering = Steering(ServiceSettings(), no_lessons(), print, print)
    path = ["behaviors", CONTINUOUS.name, "hyperparameters", "learning_rate"]
    steering.load_state_dict({"groups": [[[path, 3e-4, 0.05]]]})
    found = play(PPO, CONTINUOUS, 2, parts=(steering,)).trainers
    assert found[1].trainer_settings.hyperparameters.learning_rate == 0.05
    assert all(torch.equal(vector_of(trainer), vector_of(started)) for trainer in found.values())


def test_experience_of_a_finished_behavior_is_not_kept() -> None:
    """A follower drops what comes for a behavior whose training has ended, which no turn will take."""
    bench, other = make_bench(PPO, CONTINUOUS), make_bench(PPO, CONTINUOUS)
    build(other.context()).start()
    follower = Follower(
        bench.link, lambda declared, queue: build(bench.context(queue=queue)), ordinary_queue, lambda *_: bench.queue
    )
    bench.is_looped = True
    bench.put(SyntheticActor(other).chunk([3]))
    for number, kind in enumerate((TurnKind.LOAD, TurnKind.FINISH), 1):
        bench.link.to_trainers.send(Turn(number, 0, kind))
    bench.put(SyntheticActor(other).chunk([3]))
    bench.link.to_trainers.send(Turn(9, 0, TurnKind.UPDATE))
    with pytest.raises(RuntimeError, match="turn 9"):
        follower.run()
    assert not follower._waiting[0]


def test_a_missing_turn_is_an_error() -> None:
    """A rank that lost a turn would train something else."""
    bench = make_bench(PPO, CONTINUOUS)
    follower = Follower(
        bench.link, lambda declared, queue: build(bench.context(queue=queue)), lambda *_: bench.queue, print
    )
    with pytest.raises(RuntimeError, match="turn 2 came in the place of turn 1"):
        follower.play(Turn(2, 0, TurnKind.UPDATE))
