"""Compares recurrent actor-critics with loops over each segment."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.service.ingest.validate import LARGEST
from learner.training.buffers.buffer import UpdateRows
from learner.training.buffers.sequences import SequenceTable
from learner.training.networks.body import Body
from learner.training.networks.heads import ValueHead
from learner.training.networks.value import ActorCritic
from learner.training.trainers.actor_critic import recurrence
from learner.training.trainers.actor_critic.loss import log_probability
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer, compare
from learner.training.trainers.registry import build
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.recurrent import (
    CUT,
    TERMINATED,
    TRUNCATED,
    Played,
    RecurrentActor,
    recurrent_settings,
)
from tests.learner.training.trainers.started import single_network
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID

HYBRID_VECTOR = BehaviorSpec("HybridVector", CONTINUOUS.observations, ActionSpec(2, (3,)))

FIRST: list[Played] = [(0, 10, CUT), (1, 3, TERMINATED), (0, 10, CUT), (2, 7, CUT), (1, 10, CUT), (0, 5, TRUNCATED)]
SECOND: list[Played] = [(1, 9, TERMINATED), (0, 10, CUT), (2, 1, CUT), (2, 10, CUT), (0, 3, TERMINATED), (3, 10, CUT)]


def start(spec: Any = CONTINUOUS, **settings: Any) -> tuple[Bench, ActorCriticTrainer, RecurrentActor]:
    """Starts a trainer with a memory, and an actor for it."""
    bench = make_bench(recurrent_settings(**settings), spec)
    trainer = build(bench.context())
    if not isinstance(trainer, ActorCriticTrainer):
        raise TypeError
    trainer.start()
    return bench, trainer, RecurrentActor(bench, masked=bool(spec.action.discrete_branches))


def evaluated(
    bench: Bench, trainer: ActorCriticTrainer, chunk: Chunk, *, settles: bool = True
) -> tuple[UpdateRows, SequenceTable, list[float]]:
    """Takes a chunk as an update does; returns where it is, its sequences, and the values of all rows."""
    bench.put(chunk)
    trainer.collect()
    trainer.update_buffer.take(10**6)
    plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
    found = trainer._maker.recurrence
    assert found is not None
    recorded = trainer._maker.recorded(plan, storage, trainer.version).table
    assert recorded is not None
    values, table = found.evaluate(plan, storage, recorded)
    if settles:
        trainer.update_buffer.settle()
    return plan, table, values[:, 0].tolist()


CURIOUS: dict[str, Any] = {"extrinsic": {}, "curiosity": {"network_settings": {"hidden_units": 8}}}


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        *(
            (spec, {"trainer_type": kind})
            for spec in (CONTINUOUS, BRANCHES, HYBRID)
            for kind in ("ppo", "appo", "impala")
        ),
        (HYBRID_VECTOR, {"reward_signals": CURIOUS}),
        (HYBRID_VECTOR, {"hyper": {"gradient_accumulation": 2}}),
        (HYBRID_VECTOR, {"network": {"normalize": True}, "hyper": {"shared_critic": True, "ratio": "joint"}}),
        (HYBRID_VECTOR, {"trainer_type": "appo", "network": {"normalize": True}}),
    ],
    ids=str,
)
def test_every_kind_of_behavior_trains_with_a_memory(spec: Any, changes: dict[str, Any]) -> None:
    """Updates change all weights, also of the memories, and agree with actors, with whatever else there is."""
    bench, trainer, actor = start(spec, **changes)
    before = {name: value.clone() for name, value in trainer.network.named_parameters()}
    for played in (FIRST, SECOND, FIRST):
        bench.put(actor.play(played))
        trainer.advance()
        assert trainer.numbers["log_prob_error_max"] < 1e-5
    assert trainer.version == 3
    assert not [name for name, value in trainer.network.named_parameters() if torch.equal(value, before[name])]
    assert bench.ledger.books(spec.name).balanced


def loop(network: ActorCritic, chunk: Chunk, memories: dict[int, Tensor], *, shared: bool) -> list[float]:
    """Returns values of all rows from a loop over each segment.

    Memories are recorded ones, or those of a separate critic, which continue from segment to segment.
    """
    found: list[float] = []
    row = recorded = 0
    body = network.critic_body
    columns = {name: torch.from_numpy(chunk.columns[name]) for name in ("obs/state", "final_obs/state", "memory")}
    for segment, steps in enumerate(chunk.columns["length"].tolist()):
        agent = int(chunk.columns["agent"][segment])
        memory = memories.pop(agent, torch.zeros(1, 6))
        for step in range(steps):
            if shared and step % 4 == 0:
                memory, recorded = columns["memory"][recorded : recorded + 1], recorded + 1
            memory = _valued(network, body, columns["obs/state"][row : row + 1], memory, found)
            row += 1
        _valued(network, body, columns["final_obs/state"][segment : segment + 1], memory, found)
        if chunk.columns["end"][segment] == CUT:
            memories[agent] = memory
    return found


@torch.no_grad()
def _valued(network: ActorCritic, body: Body, seen: Tensor, memory: Tensor, found: list[float]) -> Tensor:
    hidden, after = body.step([seen], memory)
    found.append(float(network.value_head(hidden)[0, 0]))
    assert after is not None
    return after


@pytest.mark.parametrize("at_once", [4, 4096])
@pytest.mark.parametrize("shared", [False, True])
def test_values_equal_a_loop_over_segments(at_once: int, monkeypatch: pytest.MonkeyPatch, *, shared: bool) -> None:
    """Values equal a loop that carries the critic's memory over an episode's segments."""
    monkeypatch.setattr("learner.training.trainers.actor_critic.experience._ROWS_AT_ONCE", at_once)
    bench, trainer, actor = start(hyper={"shared_critic": shared})
    assert isinstance(trainer.network.critic, ValueHead) == shared
    memories: dict[int, Tensor] = {}
    for played in (FIRST, SECOND, FIRST):
        chunk = actor.play(played)
        expected = loop(single_network(trainer), chunk, memories, shared=shared)
        _, table, values = evaluated(bench, trainer, chunk)
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert (table.critic is None) == shared
    found = trainer._maker.recurrence
    assert found is not None
    assert len(found._memories._live) == (0 if shared else len(memories))


def test_a_segment_whose_predecessor_never_came_begins_with_zeros() -> None:
    """A segment without its predecessor starts with zeros."""
    bench, trainer, actor = start()
    chunk = actor.play([(0, 10, CUT)])
    evaluated(bench, trainer, chunk)
    actor.play([(0, 10, CUT)])  # lost
    for kept in (False, True):
        chunk = actor.play([(0, 6, CUT)])
        memories: dict[int, Tensor] = {}
        if kept:
            assert trainer._maker.recurrence is not None
            trainer._maker.recurrence.forget()
        expected = loop(single_network(trainer), chunk, memories, shared=False)
        assert evaluated(bench, trainer, chunk)[2] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_agents_that_were_not_seen_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of carried memories is limited; the newest stay."""
    monkeypatch.setattr(recurrence, "MAX_CARRIED", 2)
    bench, trainer, actor = start()
    memories: dict[int, Tensor] = {}
    for played in ([(0, 4, CUT), (1, 4, CUT)], [(2, 4, CUT), (0, 4, CUT)]):
        chunk = actor.play(played)
        loop(single_network(trainer), chunk, memories, shared=False)
        evaluated(bench, trainer, chunk)
    assert trainer._maker.recurrence is not None
    assert len(trainer._maker.recurrence._memories._live) == 2
    chunk = actor.play([(0, 4, CUT), (1, 4, CUT), (2, 4, CUT)])
    del memories[1]
    expected = loop(single_network(trainer), chunk, memories, shared=False)
    assert evaluated(bench, trainer, chunk)[2] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_log_ratios_equal_a_loop_over_segments() -> None:
    """V-trace weights equal a loop over sequences from recorded memories."""
    bench, trainer, actor = start(trainer_type="impala")
    chunk = actor.play(FIRST)
    plan, _, _ = evaluated(bench, trainer, chunk, settles=False)
    storage = trainer.update_buffer.ring.storage
    with torch.no_grad():
        for parameter in trainer.policy.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        recorded = trainer._maker.recorded(plan, storage, trainer.version)
        found = trainer._maker._log_ratio(plan, storage, recorded).index_select(0, plan.steps)
    expected, row, remembered = [], 0, 0
    for steps in chunk.columns["length"].tolist():
        memory: Tensor | None = None
        for step in range(steps):
            if step % 4 == 0:
                memory = torch.from_numpy(chunk.columns["memory"][remembered : remembered + 1])
                remembered += 1
            with torch.no_grad():
                output = trainer.policy([torch.from_numpy(chunk.columns["obs/state"][row : row + 1])], None, memory)
            memory = output.recurrent_out
            action = torch.from_numpy(chunk.columns["continuous_action"][row : row + 1])
            now = log_probability(output, action, None, "joint").item()
            expected.append(now - float(chunk.columns["log_prob"][row].sum()))
            row += 1
    assert np.allclose(found.numpy(), expected, rtol=1e-3, atol=1e-5)
    assert np.abs(expected).max() > 0.01


def test_fresh_steps_behind_older_ones_are_not_compared() -> None:
    """Fresh steps after older ones in a sequence are not compared with the policy."""
    bench, trainer, actor = start()
    for wrong, error in ((3, 0.0), (4, 1.0)):
        chunk = actor.play([(0, 8, CUT)])
        chunk.columns["log_prob"][wrong] += 1.0
        offsets = np.array([0, 0, 1, 1, 1, 1, 1, 1], np.uint32)
        chunk.columns["version_offset"] = offsets
        plan, _, _ = evaluated(bench, trainer, chunk, settles=False)
        recorded = trainer._maker.recorded(plan, trainer.update_buffer.ring.storage, version=1)
        found = compare(
            trainer.policy, recorded, observations=("obs/state",), ratio="per_action", sample=1000
        )  # fmt: skip
        assert float(found.error) == pytest.approx(error, abs=1e-4)
        assert int(found.worst) == (wrong if error else int(found.worst))
        trainer.update_buffer.settle()


def test_what_a_failed_update_remembers_is_forgotten() -> None:
    """A failed update carries no memories."""
    bench, trainer, actor = start()
    bench.put(actor.play([(0, 10, CUT)] * 5, columns={"reward": np.full(50, 3e38, np.float32)}))
    trainer.advance()
    assert trainer.version == 0
    assert trainer._maker.recurrence is not None
    assert len(trainer._maker.recurrence._memories._live) == 0


def test_a_saved_trainer_goes_on_with_its_memory() -> None:
    """A saved trainer's next update gives equal weights."""
    states = []
    bench, trainer, actor = start()
    bench.put(actor.play([(0, 10, TERMINATED), *FIRST]))
    trainer.advance()
    saved = copy.deepcopy(trainer.state_dict())
    chunk = actor.play([(9, 10, CUT), (8, 10, TERMINATED), (9, 10, CUT), (7, 10, TERMINATED), (6, 5, CUT)])
    for resumed in (False, True):
        if resumed:
            bench, trainer, _ = start()
            trainer.load_state_dict(saved)
            trainer.start()
        bench.put(chunk)
        trainer.advance()
        assert trainer.version == 2
        states.append({name: value.clone() for name, value in trainer.network.state_dict().items()})
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_largest_memories_that_are_welcome_do_not_end_the_training() -> None:
    """Memories at the bound leave an update finite."""
    bench, trainer, actor = start()
    chunk = actor.play(FIRST)
    chunk.columns["memory"] = np.random.default_rng(1).choice([-LARGEST, 0.1, LARGEST], (14, 6)).astype(np.float32)
    bench.put(chunk)
    trainer.advance()
    assert trainer.version == 1
