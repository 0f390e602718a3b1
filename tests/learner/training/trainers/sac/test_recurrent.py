"""Compares SAC with memory with a float64 loop over steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.exits import UserError
from learner.shared.settings.load import load_run_options
from learner.training.buffers.columns import MEMORY, REWARD
from learner.training.buffers.replay import Places
from learner.training.buffers.replay_sequences import on_device
from learner.training.buffers.sequences import pack_with_next
from learner.training.networks.lstm import Memory, Unrolled
from learner.training.trainers.replay_batches import Batch, Part, encode, encode_next, hidden_of
from learner.training.trainers.sac.trainer import SACTrainer
from tests.learner.training.networks.specs import behavior, entities, goal, vector
from tests.learner.training.trainers.in_process import CARTPOLE, Bench
from tests.learner.training.trainers.recurrent import CUT, TRUNCATED, RecurrentActor
from tests.learner.training.trainers.recurrent import TERMINATED as ENDED
from tests.learner.training.trainers.sac.started import make, resumed, settle
from tests.learner.training.trainers.sac.test_trainer import weights
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID

SEEN = behavior(entities(), goal(), vector(), continuous=1, branches=(3,))
BOTH = behavior(vector(), continuous=2, branches=(3, 2))
STRIDE, SIZE = 4, 6
PLAYED = [(0, 10, CUT), (1, 7, ENDED), (2, 3, TRUNCATED), (0, 1, ENDED)]
"""Sequences of 4, 4, 2, then 4, 3, then 3, then 1 steps."""


def make_recurrent(spec: BehaviorSpec = CONTINUOUS, **changes: Any) -> tuple[Bench, SACTrainer]:
    """Returns a bench and a started trainer with recurrent networks."""
    network = {
        "hidden_units": 8,
        "num_layers": 1,
        "normalize": False,
        "memory": {"memory_size": SIZE, "sequence_length": STRIDE},
        **changes.pop("network", {}),
    }
    return make(spec, network=network, **changes)


def play(bench: Bench, actor: RecurrentActor, trainer: SACTrainer, chunks: int = 1) -> None:
    """Sends chunks of 21 steps, and lets the trainer do all it owes for each."""
    for _ in range(chunks):
        bench.put(actor.play(PLAYED))
        settle(trainer)


@pytest.mark.parametrize(("masked", "burn_in"), [(False, 0), (True, 0), (True, 2)])
@pytest.mark.parametrize("spec", [CARTPOLE, CONTINUOUS, BRANCHES, HYBRID, SEEN], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains(spec: BehaviorSpec, burn_in: int, *, masked: bool) -> None:
    """Updates change every parameter of policy, critics and targets, and balance the books.

    Images, goals, entities, masks and signals that ignore ends work with a burn-in.
    """
    signals = {"extrinsic": {}, **({"rnd": {"strength": 0.1}} if burn_in else {})}
    bench, trainer = make_recurrent(
        spec, network={"normalize": not burn_in}, hyper={"burn_in": burn_in}, reward_signals=signals
    )
    before = weights(trainer)
    play(bench, RecurrentActor(bench, masked=masked and bool(spec.action.discrete_branches)), trainer, 3)
    after = weights(trainer)
    assert all(value.isfinite().all() for value in after.values())
    parameters = {name for name, _ in trainer.networks.named_parameters()}
    assert {"policy.body.memory.bias", "critic.memory.bias", "target.memory.bias"} <= parameters
    assert not [name for name in parameters if torch.equal(after[name], before[name])]
    batch = trainer._batches.read(trainer._batches.draw(16)[0])
    assert batch.remembered is not None
    assert (batch.remembered.warm is not None) == (batch.beginnings is not None) == bool(burn_in)
    assert bench.ledger.books(spec.name).balanced
    assert trainer.version == 31


def test_each_sequence_begins_with_what_its_actor_remembered() -> None:
    """The learner's memory at the end of a sequence equals the recorded one."""
    bench, trainer = make_recurrent(hyper={"buffer_init_steps": 1000})
    play(bench, RecurrentActor(bench), trainer)
    storage, table = trainer.memory.storage, trainer.memory.sequences
    assert table is not None
    rows, lengths, _ = table.live()
    assert lengths.tolist() == [4, 4, 2, 4, 3, 3, 1]
    body, recorded = trainer.policy.body, storage[MEMORY][rows]
    assert body.memory is not None
    for first, following in ((0, 1), (1, 2), (2, 6), (3, 4)):  # the last is the third one's episode in another segment
        steps = torch.arange(int(rows[first]), int(rows[first] + lengths[first]))
        with torch.no_grad():
            hidden = body.encode([storage["obs/state"][steps]])
            sequences = Unrolled(torch.ones(len(steps), dtype=torch.int64), recorded[first : first + 1])
            _, remembered = body.memory.unroll(hidden, sequences)
        torch.testing.assert_close(remembered[0], recorded[following])
    assert recorded[[0, 3, 5]].abs().max() == 0


def all_sequences(trainer: SACTrainer) -> Batch:
    """Returns every sequence of the memory once."""
    table = trainer.memory.sequences
    assert table is not None
    rows, lengths, warms = table.live()
    packed = pack_with_next(rows + warms, lengths)
    drawn = on_device(packed, torch.device("cpu"), warms[packed.order])
    return trainer._batches.read(Part(Places(drawn.step_rows, drawn.next_rows), drawn))


def looped(memory: Memory, inputs: list[Tensor], state: Tensor, warm: int) -> list[Tensor]:
    """Unrolls a sequence with torch's LSTM cell, without gradient for the steps that warm it."""
    cell = nn.LSTMCell(memory.input_weight.shape[1], memory.size).to(state)
    parts: dict[str, Tensor] = {
        "weight_ih": memory.input_weight,
        "weight_hh": memory.hidden_weight,
        "bias_ih": memory.bias,
        "bias_hh": torch.zeros_like(memory.bias),
    }
    now, found = torch.split(state.unsqueeze(0), memory.size, 1), []
    for step, each in enumerate(inputs):
        if step == warm:
            now = tuple(part.detach() for part in now)
        now = torch.func.functional_call(cell, parts, (each, now))
        found.append(now[0])
    return found


@pytest.mark.parametrize("burn_in", [0, 1, 3])
def test_memories_go_through_sequences_step_by_step(burn_in: int) -> None:
    """What the losses get of policy, critics and targets, and its gradients, equal those of loops over each sequence.

    The losses are compared in `test_loss`, and with recorded gradients.
    """
    bench, trainer = make_recurrent(hyper={"buffer_init_steps": 1000, "burn_in": burn_in})
    play(bench, RecurrentActor(bench), trainer, 2)
    networks, storage, table = trainer.networks, trainer.memory.storage, trainer.memory.sequences
    with torch.no_grad():  # targets that are not the critics
        for parameter in networks.target.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    batch = all_sequences(trainer)
    hidden = hidden_of(networks.policy, batch)
    found = torch.stack((hidden.now, encode(networks.critic, batch).values, hidden.after))
    slow = encode_next(networks.target, batch).values
    rewards = batch.rewards[:, 0].tolist()
    assert len(set(rewards)) == len(rewards) == 42
    assert table is not None
    assert bool(table.live()[2].any()) is (burn_in > 0)
    expected, expected_slow = torch.empty_like(found), torch.empty_like(slow)
    body, critic, target = networks.policy.body, networks.critic, networks.target
    assert body.memory is not None
    assert critic.memory is not None
    assert target.memory is not None
    for first, length, warm in zip(*table.live(), strict=True):
        rows = range(first, first + warm + length + 1)
        seen = [body.encoder([storage["obs/state"][row : row + 1]]) for row in rows]
        acted = looped(body.memory, [body.layers(each) for each in seen], storage[MEMORY][first], warm)
        known = looped(critic.memory, seen, torch.zeros(SIZE), warm)
        later = looped(target.memory, seen, torch.zeros(SIZE), warm)
        for step in range(warm, warm + length):
            row = rewards.index(float(storage[REWARD][first + step]))
            expected[:, row] = torch.cat((acted[step], known[step], acted[step + 1]))
            expected_slow[row] = later[step + 1]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(slow, expected_slow)
    outer = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    outer[2] = 0.0  # nothing descends what follows
    parameters = [*body.memory.parameters(), *critic.memory.parameters()]
    gradients = (torch.autograd.grad((each * outer).sum(), parameters) for each in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("spec", "burn_in"), [(CONTINUOUS, 0), (HYBRID, 2)], ids=["plain", "burn-in"])
def test_interrupted_training_equals_uninterrupted_training(spec: BehaviorSpec, burn_in: int, tmp_path: Path) -> None:
    """With its replay memory a resumed run continues bit for bit."""
    results = []
    for interrupted in (False, True):
        hyper = {"save_replay_buffer": True, "steps_per_update": 3, "buffer_size": 90, "burn_in": burn_in}
        bench, trainer = make_recurrent(spec, hyper=hyper)
        actor = RecurrentActor(bench)
        play(bench, actor, trainer, 5)
        if interrupted:
            trainer = resumed(bench, trainer, tmp_path)
        play(bench, actor, trainer, 2)
        results.append(weights(trainer))
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


def test_actors_record_memories_where_sequences_begin() -> None:
    """Sequences overlap by the burn-in, so that actors record a memory at the start of each."""
    bench, trainer = make_recurrent(hyper={"burn_in": 1})
    assert bench.behavior.memory_stride == bench.behavior.declared.memory_stride == STRIDE - 1
    play(bench, RecurrentActor(bench), trainer)
    storage, table = trainer.memory.storage, trainer.memory.sequences
    assert table is not None
    rows, lengths, warms = table.live()
    assert lengths.tolist() == [4, 3, 3, 4, 3, 3, 1], "the first of a segment has no burn-in"
    assert warms.tolist() == [0, 1, 1, 0, 1, 0, 0]
    assert (storage[MEMORY][rows[warms > 0]].abs().sum(1) > 0).all()


def test_sequences_must_fit() -> None:
    """A burn-in that no sequence could have, or that would leave nothing to train, is refused, and so is a small memory."""
    memory, burn_in = "network_settings.memory.sequence_length=16", "hyperparameters.burn_in=8"
    for sets, message in (
        ([burn_in], "burn_in is 8, but the policy has no memory"),
        ([memory, "hyperparameters.burn_in=16"], "sequence_length is 16, so nothing would be trained"),
        ([memory, burn_in, "time_horizon=16"], "time_horizon is 16 and network_settings.memory.sequence_length 16"),
        ([memory, "hyperparameters.buffer_size=15"], "sequence_length is 16, more than hyperparameters.buffer_size 15"),
    ):
        items = [f"behaviors.A.{each}" for each in ("trainer_type=sac", *sets)]
        with pytest.raises(UserError, match=message):
            load_run_options(None, set_items=items, environ={})
