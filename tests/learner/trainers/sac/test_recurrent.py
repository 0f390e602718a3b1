"""Compares SAC with memory with a float64 loop over steps."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from learner.buffers.columns import MEMORY, REWARD, TERMINATED
from learner.buffers.replay import Places
from learner.buffers.replay_sequences import on_device
from learner.buffers.sequences import pack_with_next
from learner.common.exits import UserError
from learner.networks.lstm import Memory, Unrolled
from learner.settings.load import load_run_options
from learner.trainers.replay_batches import Batch, Part, encode
from learner.trainers.sac.trainer import SACTrainer
from tests.learner.networks.specs import behavior, entities, goal, vector
from tests.learner.trainers.in_process import CARTPOLE, Bench
from tests.learner.trainers.recurrent import CUT, TRUNCATED, RecurrentActor
from tests.learner.trainers.recurrent import TERMINATED as ENDED
from tests.learner.trainers.sac.started import make, resumed, settle
from tests.learner.trainers.sac.test_trainer import weights
from tests.learner.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID

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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spec", [CARTPOLE, CONTINUOUS, BRANCHES, HYBRID, SEEN], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains(spec: BehaviorSpec, *, masked: bool) -> None:
    """Updates change every parameter of policy, critics and targets, and balance the books."""
    bench, trainer = make_recurrent(spec, network={"normalize": True})
    before = weights(trainer)
    play(bench, RecurrentActor(bench, masked=masked and bool(spec.action.discrete_branches)), trainer, 3)
    after = weights(trainer)
    assert all(value.isfinite().all() for value in after.values())
    parameters = {name for name, _ in trainer.networks.named_parameters()}
    assert {"policy.body.memory.bias", "critic.memory.bias", "target.memory.bias"} <= parameters
    assert not [name for name in parameters if torch.equal(after[name], before[name])]
    assert bench.ledger.books(spec.name).balanced
    assert trainer.version == 31


@pytest.mark.parametrize("spec", [HYBRID, SEEN], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains_with_a_burn_in(spec: BehaviorSpec) -> None:
    """Images, goals, entities, masks and signals that ignore ends work with a burn-in."""
    signals = {"extrinsic": {}, "rnd": {"strength": 0.1}}
    bench, trainer = make_recurrent(spec, hyper={"burn_in": 2}, reward_signals=signals)
    before = weights(trainer)
    play(bench, RecurrentActor(bench, masked=True), trainer, 3)
    after = weights(trainer)
    assert all(value.isfinite().all() for value in after.values())
    assert not [name for name, _ in trainer.networks.named_parameters() if torch.equal(after[name], before[name])]
    batch = trainer._batches.read(trainer._batches.draw(16)[0])
    assert batch.remembered is not None
    assert batch.remembered.warm is not None
    assert batch.beginnings is not None
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


class Textbook:
    """Computes losses of SAC in float64, step by step.

    Args:
        trainer: Whose networks and memory are used; its weights are copied.
        noise: ``[2, B, n]`` by the step's reward, which is another one for each.
    """

    def __init__(self, trainer: SACTrainer, noise: dict[float, tuple[Tensor, Tensor]]) -> None:
        self.networks = copy.deepcopy(trainer.networks).double()
        for parameter in self.networks.parameters():
            parameter.grad = None
        self.trainer = trainer
        self.noise = noise
        self.branches = trainer.networks.branches
        self.critic_losses: list[Tensor] = []
        self.policy_terms: list[Tensor] = []
        self.temperature_terms: list[Tensor] = []

    def remember(self, memory: Memory, inputs: list[Tensor], state: Tensor, warm: int) -> list[Tensor]:
        """Unrolls a sequence with torch's LSTM cell, without gradient for the steps that warm it."""
        cell = nn.LSTMCell(memory.input_weight.shape[1], memory.size).double()
        parts: dict[str, Tensor] = {
            "weight_ih": memory.input_weight,
            "weight_hh": memory.hidden_weight,
            "bias_ih": memory.bias,
            "bias_hh": torch.zeros_like(memory.bias),
        }
        now, found = torch.split(state.double().unsqueeze(0), memory.size, 1), []
        for step, each in enumerate(inputs):
            if step == warm:
                now = tuple(part.detach() for part in now)
            now = torch.func.functional_call(cell, parts, (each, now))
            found.append(now[0])
        return found

    def act(self, hidden: Tensor, mask: Tensor | None, noise: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Returns action, its log-probability, entropies of the branches and probabilities."""
        output = self.networks.policy.act(hidden, mask)
        action, log_prob = None, torch.zeros((), dtype=torch.float64)
        if output.mean is not None and output.log_std is not None:
            normal = Normal(output.mean, output.log_std.exp())
            raw = output.mean + output.log_std.exp() * noise.double()
            action = torch.tanh(raw)
            log_prob = (normal.log_prob(raw) - (1 - action.square()).log()).sum()
        if output.logits is None:
            return action, log_prob, torch.zeros(0), torch.ones(1, 1, dtype=torch.float64)
        policies = [Categorical(logits=part) for part in torch.split(output.logits, list(self.branches), 1)]
        entropies = torch.stack([policy.entropy().squeeze() for policy in policies])
        return action, log_prob, entropies, torch.cat([policy.probs for policy in policies], 1)

    def soft_value(self, values: Tensor, log_prob: Tensor, entropies: Tensor, probabilities: Tensor) -> Tensor:
        """Returns V of a step and signal: the smaller critic's expectation and the entropies."""
        temperatures = self.networks.temperatures
        expected = (values.amin(0).squeeze() * probabilities.squeeze()).sum() / max(1, len(self.branches))
        if temperatures.discrete is not None:
            alphas = temperatures.discrete.detach().exp()
            expected = expected + (alphas * entropies).sum() / len(self.branches)
        if temperatures.continuous is not None:
            expected = expected - temperatures.continuous.detach().exp() * log_prob
        return expected

    def sequence(self, first: int, length: int, warm: int = 0) -> None:
        """Adds the losses of one sequence whose first steps warm the memories without being trained."""
        storage, networks = self.trainer.memory.storage, self.networks
        names = [f"obs/{spec.name}" for spec in networks.policy.spec.observations]
        rows = range(first, first + warm + length + 1)
        # Encoders without parameters convert every input to float32.
        encoder = networks.policy.body.encoder
        seen = [encoder([storage[name][row : row + 1] for name in names]).double() for row in rows]
        mask = storage.get("action_mask") if self.trainer.memory.masked else None
        masks = [None if mask is None else mask[row : row + 1] for row in rows]
        body, critic, target = networks.policy.body, networks.critic, networks.target
        assert body.memory is not None
        assert critic.memory is not None
        assert target.memory is not None
        hidden = self.remember(body.memory, [body.layers(each) for each in seen], storage[MEMORY][first], warm)
        nothing = torch.zeros(SIZE)
        known = self.remember(critic.memory, seen, nothing, warm)
        slow = self.remember(target.memory, seen, nothing, warm)
        for step, row in list(enumerate(rows[:-1]))[warm:]:
            noise, next_noise = self.noise[float(storage[REWARD][row])]
            with torch.no_grad():
                following = self.act(hidden[step + 1], masks[step + 1], next_noise)
                values = target.values(critic_input(slow[step + 1]), following[0])
                goes_on = 1.0 - float(storage[TERMINATED][row])
                gamma = float(self.trainer.signals.gamma[0])
                wanted = float(storage[REWARD][row]) + gamma * goes_on * self.soft_value(values, *following[1:])
            done = None
            if networks.policy.spec.action.continuous_size:
                done = torch.tanh(storage["continuous_action"][row : row + 1].double())
            told = critic.values(critic_input(known[step]), done)[:, 0, 0]  # [2, A]
            if self.branches:
                chosen = storage["discrete_action"][row].long()
                parts = torch.split(told, list(self.branches), 1)
                told = torch.stack([part[:, choice] for part, choice in zip(parts, chosen, strict=True)], 1)
            self.critic_losses.append(0.5 * (told.mean(1) - wanted).square())
            action, *rest = self.act(hidden[step], masks[step], noise)
            self.policy_terms.append(-self.soft_value(self.frozen(known[step].detach(), action), *rest))
            self.temperature_terms.append(self.temperature(rest[0], rest[1], masks[step]))

    def frozen(self, known: Tensor, action: Tensor | None) -> Tensor:
        """Returns critics without gradients in their parameters."""
        parameters = {name: value.detach() for name, value in self.networks.critic.named_parameters()}

        class Values(nn.Module):
            def __init__(self, critic: nn.Module) -> None:
                super().__init__()
                self.critic = critic

            def forward(self) -> Tensor:
                found: Tensor = self.critic.values(critic_input(known), action)  # type: ignore[operator]
                return found

        prefixed = {f"critic.{name}": value for name, value in parameters.items()}
        found: Tensor = torch.func.functional_call(Values(self.networks.critic), prefixed, ())
        return found

    def temperature(self, log_prob: Tensor, entropies: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the sum of log alpha times excess entropy."""
        temperatures, found = self.networks.temperatures, torch.zeros((), dtype=torch.float64)
        if temperatures.continuous is not None:
            found = found + temperatures.continuous * (
                -log_prob.detach() + self.networks.policy.spec.action.continuous_size
            )
        if temperatures.discrete is not None:
            allowed = [float(size) for size in self.branches]
            if mask is not None:
                allowed = [float(part.sum()) for part in torch.split(mask, list(self.branches), 1)]
            wanted = torch.tensor([0.2 * math.log(size) for size in allowed])
            found = found + (temperatures.discrete * (entropies.detach() - wanted)).sum()
        return found

    def backward(self) -> None:
        """Computes the gradients of the means over all steps, each for its own loss."""
        loss = torch.stack(self.critic_losses).mean(0).sum()
        loss = loss + torch.stack(self.policy_terms).mean() + torch.stack(self.temperature_terms).mean()
        torch.autograd.backward(loss)


def critic_input(known: Tensor) -> Any:
    """Returns the critics' input without goals."""
    from learner.networks.encoders import Encoded

    return Encoded(known, None)


@pytest.mark.parametrize("burn_in", [0, 1, 3])
@pytest.mark.parametrize(
    ("spec", "masked"),
    [(CARTPOLE, False), (CONTINUOUS, False), (BRANCHES, False), (BRANCHES, True), (BOTH, False), (BOTH, True)],
    ids=["one branch", "axes", "branches", "masked branches", "both", "masked both"],
)
def test_losses_and_gradients_are_the_textbook_s(spec: BehaviorSpec, masked: bool, burn_in: int) -> None:
    """Losses and gradients of every parameter equal those of the loop, with and without a burn-in."""
    bench, trainer = make_recurrent(spec, hyper={"buffer_init_steps": 1000, "burn_in": burn_in})
    play(bench, RecurrentActor(bench, masked=masked), trainer, 2)
    with torch.no_grad():  # targets that are not the critics, temperatures that differ
        for index, parameter in enumerate(trainer.networks.target.parameters()):
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
        for parameter in trainer.networks.temperatures.parameters():
            parameter.add_(torch.linspace(-1.0, 0.5, parameter.numel()).view(parameter.shape))
    batch = all_sequences(trainer)
    axes, generator = spec.action.continuous_size, torch.Generator()
    generator.set_state(trainer._draws.get_state())
    noise = torch.randn((2, len(batch.rewards), axes), generator=generator)
    rewards = batch.rewards[:, 0].tolist()
    assert len(set(rewards)) == len(rewards) == 42
    book = Textbook(trainer, {reward: (noise[0, row], noise[1, row]) for row, reward in enumerate(rewards)})

    for optimizer in trainer.optimizers.values():
        optimizer.zero_grad()
    terms = trainer.loss(batch)
    torch.autograd.backward(terms.total)
    measured = trainer.measured()
    table = trainer.memory.sequences
    assert table is not None
    assert bool(table.live()[2].any()) is (burn_in > 0)
    for numbers in zip(*table.live(), strict=True):
        book.sequence(*(int(number) for number in numbers))
    book.backward()
    losses = torch.stack(book.critic_losses).mean(0).detach().float()
    found = torch.stack([measured["Losses/Q1 Loss"], measured["Losses/Q2 Loss"]])
    torch.testing.assert_close(found, losses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        terms.scalars["policy_loss"], torch.stack(book.policy_terms).mean().float(), rtol=1e-4, atol=1e-5
    )
    expected = dict(book.networks.named_parameters())
    for name, parameter in trainer.networks.named_parameters():
        if name.startswith("target."):
            continue
        gradient, wanted = parameter.grad, expected[name].grad
        assert gradient is not None
        assert wanted is not None, name
        assert wanted.abs().max() > 0, name
        torch.testing.assert_close(
            gradient,
            wanted.float(),
            rtol=2e-3,
            atol=2e-5,
            msg=lambda text, name=name: f"{name}: {text}",  # type: ignore[misc]
        )


def test_with_a_long_burn_in_critics_remember_the_episode() -> None:
    """Behind a burn-in of all steps before it, a step has the values that it has in the whole segment."""
    bench, trainer = make_recurrent(
        hyper={"buffer_init_steps": 1000, "burn_in": 6},
        network={"memory": {"memory_size": SIZE, "sequence_length": 7}},
    )
    play(bench, RecurrentActor(bench), trainer)
    batch, storage = all_sequences(trainer), trainer.memory.storage
    assert batch.remembered is not None
    critic = trainer.networks.critic
    with torch.no_grad():
        found = critic.values(encode(critic, batch), batch.actions).squeeze(3)
        rows = torch.arange(8)  # the first segment: ten steps, of which the eighth follows seven others
        whole = critic.encode([storage["obs/state"][rows]], torch.ones(8, dtype=torch.int64))
        expected = critic.values(whole, torch.tanh(storage["continuous_action"][rows])).squeeze(3)
    rewards = batch.rewards[:, 0].tolist()
    steps = [rewards.index(float(reward)) for reward in storage[REWARD][rows]]
    torch.testing.assert_close(found[:, steps[:7]], expected[:, :7])
    after_six = critic.encode([storage["obs/state"][rows[1:]]], torch.ones(7, dtype=torch.int64))
    short = critic.values(after_six, torch.tanh(storage["continuous_action"][rows[1:]])).squeeze(3)
    torch.testing.assert_close(found[:, steps[7]], short[:, -1])


@pytest.mark.parametrize("burn_in", [0, 2])
@pytest.mark.parametrize("spec", [CONTINUOUS, HYBRID], ids=lambda spec: spec.name)
def test_interrupted_training_equals_uninterrupted_training(spec: BehaviorSpec, burn_in: int, tmp_path: Path) -> None:
    """With its replay memory a resumed run continues bit for bit."""
    results = []
    for interrupted in (False, True):
        hyper = {"save_replay_buffer": True, "steps_per_update": 3, "buffer_size": 90, "burn_in": burn_in}
        bench, trainer = make_recurrent(spec, hyper=hyper)
        actor = RecurrentActor(bench)
        play(bench, actor, trainer, 8)
        if interrupted:
            trainer = resumed(bench, trainer, tmp_path)
        play(bench, actor, trainer, 3)
        results.append(weights(trainer))
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


def test_signals_that_learn_take_steps_of_sequences() -> None:
    """Curiosity learns from as many steps as the sequences have."""
    bench, trainer = make_recurrent(reward_signals={"extrinsic": {}, "curiosity": {}})
    play(bench, RecurrentActor(bench), trainer, 2)
    assert bench.stats.summary("Losses/Curiosity Forward Loss") is not None
    (part,) = trainer._batches.draw(16)
    batch = trainer._batches.read(part)
    assert batch.remembered is not None
    assert batch.remembered.memory.shape == (4, SIZE)
    assert 4 <= len(batch.rewards) == part.steps <= 16


def test_a_burn_in_needs_steps_before_a_sequence() -> None:
    """A burn-in that no sequence could have, or that would leave nothing to train, is refused."""
    memory = "behaviors.A.network_settings.memory.sequence_length=16"
    for sets, message in (
        ([], "burn_in is 8, but the policy has no memory"),
        ([memory, "behaviors.A.hyperparameters.burn_in=16"], "sequence_length is 16, so nothing would be trained"),
        ([memory, "behaviors.A.time_horizon=16"], "time_horizon is 16 and network_settings.memory.sequence_length 16"),
    ):
        items = ["behaviors.A.trainer_type=sac", "behaviors.A.hyperparameters.burn_in=8", *sets]
        with pytest.raises(UserError, match=message):
            load_run_options(None, set_items=items, environ={})


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


def test_a_replay_memory_without_a_whole_sequence_is_refused() -> None:
    """A replay memory smaller than a sequence is refused with both settings."""
    sets = [
        "behaviors.A.trainer_type=sac",
        "behaviors.A.hyperparameters.buffer_size=20",
        "behaviors.A.network_settings.memory.sequence_length=21",
    ]
    with pytest.raises(UserError, match=r"sequence_length is 21, more than hyperparameters.buffer_size 20"):
        load_run_options(None, set_items=sets, environ={})
