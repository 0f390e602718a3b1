"""Tests the POCA trainer without the service."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import ColumnRole, ImageLayout, ObservationKind
from rollcast.errors import Untrainable
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk

from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.sequences import pack, sequences_of
from learner.training.lockstep.round_queue import RoundQueue
from learner.training.trainers.memory_estimate import estimate_memory
from learner.training.trainers.poca.trainer import OF_MATES, PRESENT, POCATrainer
from tests.learner.training.rewards.recorded import demonstrate
from tests.learner.training.trainers.grouped import SPAN, Acted, GroupActor, make_poca, start
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID

BOARD = BehaviorSpec(
    "Board",
    (ObservationSpec("board", np.dtype(np.float32), (2, 4, 4), ObservationKind.IMAGE, layout=ImageLayout.CHW),),
    ActionSpec(discrete_branches=(3,)),
)
ENTITIES = BehaviorSpec(
    "Entities",
    (
        ObservationSpec("list", np.dtype(np.float32), (5, 3), ObservationKind.ENTITIES),
        ObservationSpec("own", np.dtype(np.float32), (4,), ObservationKind.VECTOR),
    ),
    ActionSpec(1, (2,)),
)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("spec", [CONTINUOUS, BRANCHES, HYBRID, ENTITIES], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains(spec: BehaviorSpec, *, recurrent: bool) -> None:
    """Two updates change all weights, agree with actors, and balance the books."""
    bench, trainer, play = start(spec, recurrent=recurrent, masked=bool(spec.action.discrete_branches))
    before = {name: value.clone() for name, value in trainer.network.named_parameters()}
    for _ in range(2):
        bench.put(play())
        trainer.advance()
        assert trainer.numbers["log_prob_error_max"] < 1e-4
    assert trainer.version == 2
    same = [name for name, value in trainer.network.named_parameters() if torch.equal(value, before[name])]
    assert same == []
    assert bench.ledger.books(spec.name).trained == 2 * 38
    assert bench.ledger.books(spec.name).balanced


def test_a_tower_trains() -> None:
    """The critic reads boards through a tower."""
    tower = {"tower": {"width": 4, "depth": 1}, "normalize": False}
    bench, trainer = make_poca(BOARD, network=tower)
    bench.put(GroupActor(bench).play())
    trainer.advance()
    assert trainer.version == 1


@pytest.mark.parametrize("recurrent", [False, True])
def test_the_experience_equals_what_the_minibatch_computes(*, recurrent: bool) -> None:
    """Values and baselines of the experience are those of the critic for the columns that a minibatch draws."""
    bench, trainer, play = start(HYBRID, recurrent=recurrent)
    for _ in range(2):  # the second span continues episodes with their memories
        bench.put(play())
        trainer.collect()
        trainer.update_buffer.take(10**6)
        plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
        recorded = trainer._maker.recorded(plan, storage, 0)
        found = trainer._maker.estimate(plan, storage, recorded)
        trainer.update_buffer.settle()
        sequences, order = None, torch.arange(plan.step_count)
        if found.table is not None:
            item = pack(found.table.cut, np.arange(len(found.table.cut.starts)))
            sequences, order = (
                sequences_of(found.table, item, torch.from_numpy(item.order)),
                torch.from_numpy(item.steps),
            )
        columns = {name: source.at(order) for name, source in recorded.sources.items()}
        with torch.no_grad():
            _, values = trainer.evaluate(columns, sequences)
        assert found.baselines is not None
        expected = torch.cat((found.values, found.baselines), dim=1)[plan.steps][order]
        assert torch.allclose(values, expected, atol=1e-5)
        assert columns[PRESENT].shape == (38, 2)
        assert columns[OF_MATES + "obs/pixels"].shape == (38, 2, 20, 20, 3)


def test_targets_are_lambda_returns_minus_baselines() -> None:
    """Advantages equal a plain loop: lambda-returns of the team's rewards minus baselines; see `SPAN`."""
    gamma, lambd = 0.9, 0.8
    hyper = {"lambd": lambd, "normalize_advantages": False, "normalize_values": False}
    bench, trainer = make_poca(hyper=hyper, reward_signals={"extrinsic": {"gamma": gamma}})
    chunk = GroupActor(bench).play()
    bench.put(chunk)
    trainer.collect()
    trainer.update_buffer.take(10**6)
    plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
    recorded = trainer._maker.recorded(plan, storage, 0)
    found = trainer._maker.estimate(plan, storage, recorded)
    experience = trainer._maker.make(plan, storage, recorded)
    assert found.baselines is not None
    values, baselines = found.values[:, 0].tolist(), found.baselines[:, 0].tolist()

    team = _team_rewards(chunk.columns["reward"], SPAN)
    returns, advantages = [], []
    row = begin = 0
    for one in SPAN:
        # The value counts after a cut, an interrupted group, and an early death; not after a terminated group.
        following = 0.0 if one.group == 8 else values[row + one.steps]
        later, part = following, []
        for step in reversed(range(one.steps)):
            later = team[begin + step] + gamma * ((1 - lambd) * following + lambd * later)
            part.append((later, later - baselines[row + step]))
            following = values[row + step]
        returns += [one for one, _ in reversed(part)]
        advantages += [one for _, one in reversed(part)]
        row, begin = row + one.steps + 1, begin + one.steps
    assert experience.sources["returns"].values[:, 0].tolist() == pytest.approx(returns, rel=1e-4, abs=1e-5)
    assert experience.sources["advantage"].values[:, 0].tolist() == pytest.approx(advantages, rel=1e-4, abs=1e-5)


def _team_rewards(own: Any, span: tuple[Acted, ...] | Any) -> list[float]:
    """Returns the reward of each row: those of all its group's agents at its group step, and 1 of the group."""
    places = [(one.group or -one.agent, one.first + step) for one in span for step in range(one.steps)]
    return [
        1.0 + sum(float(reward) for reward, other in zip(own, places, strict=True) if other == place)
        for place in places
    ]


def test_agents_without_groups_train() -> None:
    """A group of one is allowed: the critic then sees one agent."""
    bench, trainer = make_poca()
    actor = GroupActor(bench)
    bench.put(actor.play([Acted(1, 0, 0, 20), Acted(2, 0, 0, 20)]))
    trainer.advance()
    bench.put(actor.chunk([20, 20]))  # an actor that knows no groups
    trainer.advance()
    assert trainer.version == 2
    network: Any = trainer.network
    assert float(network.critic.most_agents) == 1.0


@pytest.mark.parametrize("recurrent", [False, True])
def test_interrupted_training_equals_uninterrupted_training(*, recurrent: bool) -> None:
    """Four updates equal two, a save, a load and two more, bit for bit."""
    found = []
    for interrupted in (False, True):
        bench, trainer, play = start(CONTINUOUS, recurrent=recurrent)
        ended = [
            one._replace(end=one.end if one.end != 1 else type(one.end)(3)) for one in SPAN
        ]  # no memory is carried
        for update in range(4):
            if interrupted and update == 2:
                file = io.BytesIO()
                torch.save(trainer.state_dict(), file)
                file.seek(0)
                trainer = POCATrainer(bench.context(seed=99))
                trainer.load_state_dict(torch.load(file, weights_only=True))
                trainer.start()
            bench.put(play(ended))
            trainer.advance()
        found.append({name: value.clone() for name, value in trainer.network.state_dict().items()})
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
    assert "critic.most_agents" in found[0]


def test_imitation_works_per_agent(tmp_path: Path) -> None:
    """Signals reward each agent of a group for itself, and cloning trains the policy that the agents share."""
    demo = str(demonstrate(tmp_path / "x.demo", CONTINUOUS, lengths=(20, 20)))
    gail = {"demo_path": demo, "use_actions": True, "network_settings": {"hidden_units": 8}}
    bench, trainer = make_poca(
        reward_signals={"extrinsic": {}, "gail": gail, "curiosity": {}, "rnd": {}},
        behavioral_cloning={"demo_path": demo, "steps": 10_000, "strength": 0.5, "num_epoch": 1},
    )
    actor = GroupActor(bench)
    for _ in range(2):
        bench.put(actor.play())
        trainer.advance()
    assert trainer.version == 2
    names = ("Policy Loss", "Value Loss", "Baseline Loss", "GAIL Loss", "Pretraining Loss")
    estimates = (f"{each} Baseline Estimate" for each in ("Extrinsic", "Gail", "Curiosity", "Rnd"))
    shown = *(f"Losses/{name}" for name in names), *(f"Policy/{name}" for name in estimates)
    assert [name for name in shown if bench.stats.summary(name) is None] == []


def part_of(chunk: Chunk, segments: list[int], sequence: int) -> Chunk:
    """Returns some segments of a chunk as a chunk of their own."""
    lengths = chunk.columns["length"].astype(int)
    starts = np.cumsum(lengths) - lengths
    rows = np.concatenate([starts[each] + np.arange(lengths[each]) for each in segments])
    columns, roles = {}, {}
    for name, values in chunk.columns.items():
        is_step = len(values) == chunk.rows
        columns[name] = values[rows if is_step else segments]
        final = ColumnRole.FINAL if name.startswith("final_obs/") else ColumnRole.SEGMENT
        roles[name] = ColumnRole.STEP if is_step else final
    return replace(chunk, sequence=sequence, segments=len(segments), rows=len(rows), columns=columns, roles=roles)


def test_lock_step_does_not_depend_on_chunks() -> None:
    """In lock-step, rounds of groups in one chunk and in several, with a save and a load between them, end bit-equal."""
    everyone = list(range(len(SPAN)))
    found = []
    for parts in ([everyone], [[5, 6], [3, 4], [2, 0, 1]]):
        bench, trainer = make_poca(service={"lockstep": {}})
        actor = GroupActor(bench)
        for number in range(4):
            if number == 2 and len(parts) > 1:
                state = trainer.state_dict()
                trainer = POCATrainer(bench.context(seed=99))
                trainer.load_state_dict(state)
                trainer.start()
            chunk = actor.play()
            for sequence, segments in enumerate(parts, 1):
                bench.put(part_of(chunk, segments, sequence))
            assert isinstance(bench.queue, RoundQueue)
            bench.queue.release(["session"])
            trainer.advance()
        assert trainer.version == 4
        found.append({name: value.clone() for name, value in trainer.network.state_dict().items()})
    assert [name for name, value in found[0].items() if not torch.equal(value, found[1][name])] == []


def test_a_declaration_is_judged() -> None:
    """The networks and a minibatch are counted without allocation; an image too small for its encoder is refused."""
    changes: dict[str, Any] = {"trainer_type": "poca", "network_settings": {"vis_encode_type": "nature_cnn"}}
    settings = TrainerSettings.model_validate(changes)
    found = estimate_memory(CONTINUOUS, settings, ServiceSettings())
    ppo = estimate_memory(CONTINUOUS, TrainerSettings.model_validate({"trainer_type": "ppo"}), ServiceSettings())
    assert found.network_bytes > ppo.network_bytes
    assert found.batch_bytes > ppo.batch_bytes
    with pytest.raises(Untrainable, match="nature_cnn"):
        estimate_memory(HYBRID, settings, ServiceSettings())
    memory = {"trainer_type": "poca", "network_settings": {"memory": {}}}
    assert (
        estimate_memory(CONTINUOUS, TrainerSettings.model_validate(memory), ServiceSettings()).batch_bytes
        > found.batch_bytes
    )
