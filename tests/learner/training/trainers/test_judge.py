"""Tests that the memory of a training is counted at its declaration, and refused if too large."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import DimensionProperty, ImageLayout, ObservationKind, ObservationRole
from rollcast.errors import Untrainable
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from learner.link.channel import Link
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.shared.settings.options import RunOptions
from learner.shared.settings.rewards import FeatureSettings, RewardSignals, RNDSettings
from learner.training.buffers.replay import replay_row_bytes, replay_size
from learner.training.networks.twin import TwinCritic
from learner.training.trainers.memory_estimate import estimate_memory
from tests.learner.service.ingest.parts import NAME, make_options, make_spec, open_default
from tests.learner.training.networks.specs import behavior as specified
from tests.learner.training.networks.specs import entities, image, vector
from tests.learner.training.networks.specs import goal as goal_of


def table(options: RunOptions | None = None) -> BehaviorTable:
    """Returns an empty table."""
    return BehaviorTable(options or make_options(), Ledger(), estimate_memory, Link().to_trainers.send)


def seeing(*observations: ObservationSpec, branches: tuple[int, ...] = (2,)) -> BehaviorSpec:
    """Returns a behavior with these observations."""
    return BehaviorSpec(NAME, observations, ActionSpec(discrete_branches=branches))


def crowd(*shape: int, role: ObservationRole = ObservationRole.DEFAULT) -> ObservationSpec:
    """Returns a list of entities."""
    properties = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
    return ObservationSpec(
        "crowd", np.dtype(np.float32), shape, ObservationKind.ENTITIES, role, dimension_properties=properties
    )


GOAL = ObservationSpec("goal", np.dtype(np.float32), (3,), role=ObservationRole.GOAL)
UNCONDITIONED = RunOptions.model_validate(
    {"behaviors": {NAME: {"time_horizon": 8, "network_settings": {"goal_conditioning_type": "none"}}}}
)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0, 3), (4, 0)])
def test_entities_of_odd_shapes_are_refused_and_not_flattened(shape: tuple[int, ...]) -> None:
    """UNTRAINABLE names the observation, its shape and the required one."""
    behaviors = table()
    with pytest.raises(Untrainable, match=r"'crowd' is a list of entities of shape .*; it must be \[max, size\]"):
        behaviors.declare(seeing(crowd(*shape)), 0, 1)
    assert behaviors.all() == ()


def test_a_goal_of_variable_length_is_refused() -> None:
    """UNTRAINABLE names the goal of variable length and the setting to change."""
    goals = crowd(20, 5, role=ObservationRole.GOAL)
    with pytest.raises(
        Untrainable, match=r"'crowd' is a goal and a list of up to 20 .*network_settings.goal_conditioning_type: none"
    ) as caught:
        table().declare(seeing(goals), 0, 1)
    assert dict(caught.value.metadata) == {"behavior": NAME, "observation": "crowd"}
    assert table(UNCONDITIONED).declare(seeing(goals), 0, 1).spec.observations == (goals,)


def test_a_ring_that_memory_cannot_hold_is_refused() -> None:
    """A ring that exceeds the memory is refused with required and available bytes."""
    spec = make_spec(size=500_000)
    with pytest.raises(Untrainable, match=r"rollcast\.max_training_bytes is 1073741824 .*lower buffer_size") as caught:
        table(make_options(max_training_bytes=2**30)).declare(spec, 0, 1)
    need = int(caught.value.metadata["needed_bytes"])
    assert need > 40e9
    assert table(make_options(max_training_bytes=need)).declare(spec, 0, 1).index == 0


def test_behaviors_share_the_memory() -> None:
    """Behaviors share the memory, and the one that exceeds it is refused."""
    options = open_default()
    one = estimate_memory(make_spec(), options.behaviors[NAME], options.rollcast).total_bytes
    behaviors = table(open_default(max_training_bytes=2 * one))
    for name in ("A", "B"):
        behaviors.declare(make_spec(name), 0, 1)
    with pytest.raises(Untrainable, match=f"in addition to {2 * one} for other behaviors"):
        behaviors.declare(make_spec("C"), 0, 1)
    assert behaviors.declare(make_spec("A"), 0, 1).index == 0


def test_policies_larger_than_actors_take_are_refused() -> None:
    """A policy larger than actors accept is refused."""
    wide = tuple(
        ObservationSpec(f"c{number}", np.dtype(np.int32), (1,), ObservationKind.CATEGORICAL, categories=(65_536,))
        for number in range(64)
    )
    with pytest.raises(Untrainable, match=r"more than \d{10} bytes; actors accept at most 1073741824"):
        table(make_options(max_training_bytes=2**50)).declare(seeing(*wide), 0, 1)


def test_a_footprint_counts_ring_and_networks() -> None:
    """The footprint counts ring and networks, with seven copies of each trained number."""
    options = make_options()
    settings, service = options.behaviors[NAME], options.rollcast
    small, large = (estimate_memory(make_spec(size=size), settings, service) for size in (4, 400))
    assert large.row_bytes - small.row_bytes == 4 * 396
    assert large.policy_bytes - small.policy_bytes == 4 * 396 * 128
    assert large.network_bytes - small.network_bytes == 2 * 7 * 4 * 396 * 128
    assert small.total_bytes == small.ring_rows * small.row_bytes + small.network_bytes + small.batch_bytes
    layers = 4 * settings.hyperparameters.batch_size * 2 * 2 * 128  # of actor and critic
    assert layers < small.batch_bytes < 3 * layers


def with_network(network: dict[str, Any], trainer_type: str = "ppo", **changes: Any) -> RunOptions:
    """Returns a run file with a network and memory for a small one."""
    block = {"trainer_type": trainer_type, "time_horizon": 8, "network_settings": network, **changes}
    return RunOptions.model_validate({"behaviors": {NAME: block}, "rollcast": {"max_training_bytes": 2**32}})


@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
@pytest.mark.parametrize(
    "network", [{"hidden_units": 12_000, "num_layers": 2}, {"memory": {"memory_size": 2**17}}], ids=str
)
def test_width_and_depth_are_part_of_it(network: dict[str, Any], trainer_type: str) -> None:
    """A network that exceeds the memory is refused before anything is allocated."""
    with pytest.raises(Untrainable, match=r"hidden_units"):
        table(with_network(network, trainer_type)).declare(make_spec(), 0, 1)
    table(with_network({"hidden_units": 512, "num_layers": 3}, trainer_type)).declare(make_spec(), 0, 1)


def test_a_minibatch_in_parts_takes_less() -> None:
    """A divided minibatch counts by its parts, and never exceeds the ring."""
    network = {"hidden_units": 4096, "num_layers": 1}
    whole, parts, huge = (
        with_network(network, hyperparameters={"buffer_size": 20_000, **hyper})
        for hyper in ({"batch_size": 8192}, {"batch_size": 8192, "gradient_accumulation": 8}, {"batch_size": 2**40})
    )
    found = [estimate_memory(make_spec(), each.behaviors[NAME], each.rollcast) for each in (whole, parts, huge)]
    assert found[0].batch_bytes == pytest.approx(8 * found[1].batch_bytes, rel=0.01)
    assert found[1].network_bytes == found[0].network_bytes
    assert found[2].batch_bytes < found[2].ring_rows * 200_000
    with pytest.raises(Untrainable, match=r"\d{15,} for a minibatch.*lower .*batch_size"):
        table(with_network(network, "sac", hyperparameters={"batch_size": 2**40})).declare(make_spec(), 0, 1)


@pytest.mark.parametrize("trainer_type", ["ppo", "appo", "impala", "sac"])
def test_observations_of_critics_only_are_not_in_the_policy(trainer_type: str) -> None:
    """The policy is as large as without them, critics and rows as with them; a name without an observation is refused."""
    spec = specified(vector("near", 4), vector("secret", 300), branches=(2,))
    lacking = specified(vector("near", 4), branches=(2,))
    run, plain = with_network({"critic_only": ["secret"]}, trainer_type), with_network({}, trainer_type)
    found, largest, least = (
        estimate_memory(each, options.behaviors[NAME], options.rollcast)
        for each, options in ((spec, run), (spec, plain), (lacking, plain))
    )
    assert found.policy_bytes == least.policy_bytes
    assert found.row_bytes == largest.row_bytes
    assert found.batch_bytes > least.batch_bytes
    assert largest.network_bytes - found.network_bytes == 7 * (largest.policy_bytes - least.policy_bytes)
    unknown = with_network({"critic_only": ["secrets"]}, trainer_type)
    with pytest.raises(Untrainable, match="names 'secrets', but the observations are near, secret") as refused:
        estimate_memory(spec, unknown.behaviors[NAME], unknown.rollcast)
    assert refused.value.metadata["observation"] == "secrets"


def test_a_footprint_counts_what_a_minibatch_keeps() -> None:
    """The footprint counts attention, generated weights and memories of a minibatch."""
    options = make_options()
    settings, service = options.behaviors[NAME], options.rollcast
    batch_size = settings.hyperparameters.batch_size
    plain = estimate_memory(make_spec(), settings, service).batch_bytes
    generated = 4 * batch_size * 128 * 128
    # In actor and critic, and two gradients.
    assert 4 * generated < estimate_memory(seeing(GOAL), settings, service).batch_bytes < 4 * generated + 3 * plain
    assert estimate_memory(seeing(crowd(2000, 5)), settings, service).batch_bytes > 2000**2 * 4 * batch_size
    with pytest.raises(Untrainable, match=r"\d{11,} for a minibatch.*lower .*batch_size"):
        table(make_options(max_training_bytes=2**30)).declare(seeing(crowd(2000, 5)), 0, 1)
    memory = {"network_settings": {"memory": {"memory_size": 12}}, "time_horizon": 8}
    remembering = RunOptions.model_validate({"behaviors": {NAME: memory}}).behaviors[NAME]
    found = estimate_memory(make_spec(), remembering, service)
    gates = 4 * batch_size * 2 * 6 * 6  # four gates, cell and its tanh, each half as wide as the memory
    assert gates < found.batch_bytes - plain < 8 * gates
    assert found.row_bytes - estimate_memory(make_spec(), settings, service).row_bytes == 4 * 12


SMALL = FeatureSettings(hidden_units=16)


def options(*, signal: dict[str, Any], **service: Any) -> RunOptions:
    """Returns a run file with curiosity."""
    block = {
        "time_horizon": 8,
        "hyperparameters": {"batch_size": 32},
        "network_settings": {"goal_conditioning_type": "none", "vis_encode_type": "match3"},
        "reward_signals": {"extrinsic": {}, "curiosity": {"network_settings": signal}},
    }
    return RunOptions.model_validate({"behaviors": {NAME: block}, "rollcast": service})


def declared(spec: BehaviorSpec, run: RunOptions) -> None:
    """Declares a behavior."""
    table(run).declare(spec, 0, 1)


def named(*observations: Any) -> BehaviorSpec:
    """Returns a behavior of the run file."""
    spec = specified(*observations, branches=(2,))
    return BehaviorSpec(NAME, spec.observations, spec.action)


def test_a_footprint_counts_the_signals() -> None:
    """The footprint counts signals: seven copies of trained parts, two of fixed ones, and their minibatch."""
    run = options(signal={"hidden_units": 16})
    spec, settings = named(vector(size=50)), run.behaviors[NAME]
    found = estimate_memory(spec, settings, run.rollcast)
    body = 51 * 16 + 17 * 16
    models = (33 * 256 + 257 * 2) + (19 * 256 + 257 * 16)
    kept = found.signal_bytes - 4 * 7 * (body + models)
    assert 4 * 32 * 2 * (16 + 256) < kept < 4 * 32 * 16 * (16 + 256)
    target = settings.model_copy(update={"reward_signals": RewardSignals(rnd=RNDSettings(network_settings=SMALL))})
    kept = estimate_memory(spec, target, run.rollcast).signal_bytes - 4 * (7 + 2) * body
    assert 4 * 32 * 2 * 16 < kept < 4 * 32 * 32 * 16
    assert found.total_bytes > found.ring_rows * found.row_bytes + found.signal_bytes


def test_what_a_signal_cannot_see_is_refused() -> None:
    """An observation that a signal cannot encode is refused."""
    lists = entities(role=goal_of().role)
    with pytest.raises(Untrainable, match="goal_conditioning_type: none"):
        declared(named(lists), options(signal={}))
    declared(named(lists), options(signal={"goal_conditioning_type": "none"}))
    with pytest.raises(Untrainable, match="vis_encode_type resnet needs at least 15"):
        declared(named(image(shape=(10, 10, 3))), options(signal={"vis_encode_type": "resnet"}))
    declared(named(image(shape=(10, 10, 3))), options(signal={"vis_encode_type": "match3"}))


def replaying(service: dict[str, Any] | None = None, **hyper: Any) -> RunOptions:
    """Returns a run file with sac."""
    block = {"trainer_type": "sac", "hyperparameters": hyper, "time_horizon": 64}
    return RunOptions.model_validate({"behaviors": {NAME: block}, "rollcast": service or {}})


def test_a_replay_memory_that_does_not_fit_is_refused_by_name() -> None:
    """A replay memory that exceeds the memory is refused with the setting to lower."""
    service = {"max_training_bytes": 2**28}
    with pytest.raises(Untrainable, match=r"a replay memory of \d+ rows of \d+ bytes.*lower buffer_size") as caught:
        table(replaying(service, buffer_size=10_000_000)).declare(make_spec(), 0, 1)
    assert int(caught.value.metadata["needed_bytes"]) > 2**28
    assert table(replaying(service)).declare(make_spec(), 0, 1).index == 0


def test_a_footprint_counts_the_burn_in() -> None:
    """The observations of a burn-in are counted: with 24 of 32 steps, three for each trained step."""
    spec, sizes = make_spec(size=5000), []
    for burn_in in (0, 24):
        block = {
            "trainer_type": "sac",
            "hyperparameters": {"burn_in": burn_in},
            "network_settings": {"hidden_units": 4, "memory": {"sequence_length": 32, "memory_size": 4}},
        }
        run = RunOptions.model_validate({"behaviors": {NAME: block}})
        sizes.append(estimate_memory(spec, run.behaviors[NAME], run.rollcast).batch_bytes)
    assert sizes[1] - sizes[0] >= 128 * 3 * 4 * 5000


def test_a_footprint_counts_every_row_of_a_replay_memory() -> None:
    """The footprint counts a replay memory's rows, critics seven times and targets twice."""
    run, spec = replaying(buffer_size=30_000), make_spec(size=50)
    found = estimate_memory(spec, run.behaviors[NAME], run.rollcast)
    size = replay_size(replay_row_bytes(spec), buffer_size=30_000, time_horizon=64)
    assert (found.ring_rows, found.row_bytes, found.replays) == (size.capacity_rows, replay_row_bytes(spec), True)
    network = run.behaviors[NAME].network_settings
    critics = sum(value.numel() for value in TwinCritic(spec, network, 1).parameters())
    temperatures = len(spec.action.discrete_branches)
    assert found.network_bytes == 7 * found.policy_bytes + 4 * (7 + 2) * critics + 4 * 7 * temperatures


class OffMeta(TorchDispatchMode):
    """Records every tensor that is not on the meta device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[tuple[str, torch.dtype, int]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Checks inputs and outputs."""
        results = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, results)):
            if isinstance(value, torch.Tensor) and not value.is_meta:
                self.found.add((str(func), value.dtype, value.numel()))
        return results


BOARD = ObservationSpec("board", np.dtype(np.float32), (4, 3, 5), ObservationKind.IMAGE, layout=ImageLayout.CHW)
PIECE = ObservationSpec("piece", np.dtype(np.int32), (2,), ObservationKind.CATEGORICAL, categories=(3, 4))
SPECS = {
    "axes": specified(continuous=2),
    "both": specified(vector(), PIECE, continuous=1, branches=(3, 2)),
    "pictures": specified(image(shape=(40, 44, 3)), vector(), branches=(3,)),
    "lists": specified(entities(), entities("others", (2, 7)), vector(), branches=(2,)),
    "goals and lists": specified(entities(), goal_of(), continuous=2, branches=(3,)),
}
NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {"hidden_units": 8, "normalize": True},
    "one layer": {"num_layers": 1, "vis_encode_type": "nature_cnn", "initialization": "lecun"},
    "resnet": {"vis_encode_type": "resnet", "goal_conditioning_type": "none", "initialization": "kaiming"},
    "memory": {"memory": {"memory_size": 6}, "activation": "swish"},
}
TOWER = {"tower": {"depth": 2, "width": 6}, "vis_encode_type": "fully_connected"}
TOWERED = specified(BOARD, vector(), continuous=1, branches=(5,))


def settings_of(trainer_type: str, network: dict[str, Any]) -> RunOptions:
    """Returns a run file with a network for the policy and every signal."""
    signals = {name: {"network_settings": network} for name in ("curiosity", "rnd")}
    gail = {"demo_path": "none", "use_actions": True, "use_vail": True, "network_settings": network}
    block = {
        "trainer_type": trainer_type,
        "network_settings": network,
        "reward_signals": {"extrinsic": {}, "gail": gail, **signals},
    }
    return RunOptions.model_validate({"behaviors": {"Test": block}})


def judged() -> Iterator[Any]:
    """Yields each network with each spec for ppo; the others have the same networks, and losses of their own."""
    for spec, network in itertools.product(SPECS, NETWORKS):
        yield pytest.param("ppo", SPECS[spec], NETWORKS[network], id=f"{spec}, {network}-ppo")
    for trainer_type in ("sac", "appo", "impala"):
        for spec, network in zip(SPECS, itertools.cycle(NETWORKS), strict=False):
            yield pytest.param(trainer_type, SPECS[spec], NETWORKS[network], id=f"{spec}, {network}-{trainer_type}")
    for trainer_type in ("ppo", "appo", "impala", "sac"):
        yield pytest.param(trainer_type, TOWERED, TOWER, id=f"tower-{trainer_type}")


@pytest.mark.parametrize(("trainer_type", "spec", "network"), list(judged()))
def test_nothing_is_on_another_device_than_meta(trainer_type: str, spec: BehaviorSpec, network: dict[str, Any]) -> None:
    """All tensors are on the meta device, except for constants and sequence lengths."""
    run, seen = settings_of(trainer_type, network), OffMeta()
    with seen:
        found = estimate_memory(spec, run.behaviors["Test"], run.rollcast)
    assert found.signal_bytes > 0
    assert found.batch_bytes > 0
    lengths = {found for found in seen.found if found[1] == torch.int64 and found[2] <= 5 and "memory" in network}
    constants = {found for found in seen.found if found[2] == 1}
    assert seen.found == lengths | constants


def test_random_numbers_are_left_alone() -> None:
    """An estimate does not use torch's global generator."""
    before = torch.get_rng_state()
    for trainer_type in ("ppo", "sac"):
        run = settings_of(trainer_type, NETWORKS["plain"])
        estimate_memory(SPECS["axes"], run.behaviors["Test"], run.rollcast)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_that_a_goal_makes_count_although_nothing_saves_them() -> None:
    """Generated weights and their gradients count even if autograd saves only the observations."""
    units, numbers = 32, 3000
    block = {"network_settings": {"num_layers": 1, "hidden_units": units}, "hyperparameters": {"batch_size": 64}}
    options = RunOptions.model_validate({"behaviors": {NAME: block}})
    found = estimate_memory(
        seeing(ObservationSpec("state", np.dtype(np.float32), (numbers,)), GOAL),
        options.behaviors[NAME],
        options.rollcast,
    )
    assert found.batch_bytes > 2 * 64 * 4 * numbers * units


@pytest.mark.slow
def test_nothing_of_torch_is_left_to_load_at_the_first_declaration() -> None:
    """The modules that torch needs for the meta device are imported before the first declaration."""
    script = """
import sys
import tracemalloc
from collections.abc import Iterator
from learner.shared.settings.load import load_run_options
from learner.training.trainers.memory_estimate import estimate_memory, load_meta_device
from tests.protos.builders import CARTPOLE

load_meta_device()
before = set(sys.modules)
options = load_run_options(None).options
estimate_memory(CARTPOLE, options.settings_for("CartPole"), options.rollcast)
print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] in {"torch", "sympy", "mpmath"}))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout.split("\n")[0]) == (0, "[]"), ended.stderr


def observation(name: str, dtype: str, shape: tuple[int, ...], kind: Any = ObservationKind.VECTOR, **more: Any) -> Any:
    """Returns an observation."""
    return ObservationSpec(name, np.dtype(dtype), shape, kind, **more)


CATEGORICAL = ObservationKind.CATEGORICAL
CATEGORIES = tuple(observation(f"c{n}", "int32", (1,), CATEGORICAL, categories=(65_536,)) for n in range(63))
ELEMENTS = tuple(observation(f"e{n}", "int8", (65_536,), CATEGORICAL, categories=(1,) * 65_536) for n in range(16))


@pytest.mark.parametrize(
    ("observations", "network"),
    [
        ((*CATEGORIES, GOAL), {"hidden_units": 2**20, "num_layers": 1}),
        pytest.param(ELEMENTS, {}, marks=pytest.mark.slow),
        ((GOAL,), {"hidden_units": 2**20}),
        pytest.param(
            (observation("crowd", "uint8", (1_900_000, 1), ObservationKind.ENTITIES),), {}, marks=pytest.mark.slow
        ),
        (
            (observation("board", "uint8", (700, 700, 3), ObservationKind.IMAGE),),
            {"tower": {"depth": 10, "width": 2**20}},
        ),
        ((GOAL,), {"hidden_units": 2**14, "num_layers": 64}),
    ],
    ids=["categories", "elements", "goal", "crowd", "board", "deep"],
)
def test_the_largest_declarations_are_refused_in_little_memory(observations: Any, network: dict[str, Any]) -> None:
    """The largest possible declarations are refused without large allocations, of torch or of others."""
    spec = BehaviorSpec(NAME, observations, ActionSpec(2, (65_536 // 256,) * 256))
    tracemalloc.start()
    try:
        with OffMeta() as seen, pytest.raises(Untrainable):
            table(with_network(network, "sac")).declare(spec, 0, 1)
        assert tracemalloc.get_traced_memory()[1] < 300 * 2**20
    finally:
        tracemalloc.stop()
    assert max((found[2] for found in seen.found), default=0) <= 2**20
