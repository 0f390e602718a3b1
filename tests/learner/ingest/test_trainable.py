"""What cannot be trained here is refused at its declaration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rollcast.enums import DimensionProperty, ImageLayout, ObservationKind, ObservationRole
from rollcast.errors import RingTooSmall, Untrainable
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.memory import available_bytes
from learner.ingest.pictures import MIN_SIDE_PIXELS
from learner.ingest.trainable import footprint
from learner.settings.run import RunOptions
from tests.learner.ingest.parts import NAME, make_options, make_spec, open_default


def table(options: RunOptions | None = None) -> BehaviorTable:
    """An empty table."""
    return BehaviorTable(options or make_options(), Ledger())


def seeing(*observations: ObservationSpec, branches: tuple[int, ...] = (2,)) -> BehaviorSpec:
    """A behavior with these observations."""
    return BehaviorSpec(NAME, observations, ActionSpec(discrete_branches=branches))


def picture(height: int, width: int, layout: ImageLayout = ImageLayout.HWC) -> ObservationSpec:
    """A picture of bytes with three channels."""
    shape = (3, height, width) if layout == ImageLayout.CHW else (height, width, 3)
    return ObservationSpec("pixels", np.dtype(np.uint8), shape, ObservationKind.IMAGE, layout=layout)


def encoding(kind: str) -> RunOptions:
    """A run file with an encoder of pictures."""
    block = {"time_horizon": 8, "network_settings": {"vis_encode_type": kind}}
    return RunOptions.model_validate({"behaviors": {NAME: block}})


@pytest.mark.parametrize("kind", sorted(MIN_SIDE_PIXELS))
@pytest.mark.parametrize("layout", [ImageLayout.HWC, ImageLayout.CHW])
def test_pictures_smaller_than_their_encoder_are_refused(kind: str, layout: ImageLayout) -> None:
    """UNTRAINABLE names the size, the encoder, its smallest side and the way out; the smallest picture is taken."""
    side = MIN_SIDE_PIXELS[kind]
    behaviors = table(encoding(kind))
    if side > 1:
        with pytest.raises(Untrainable, match=rf"{side}x{side - 1} pixels; .* {kind} needs at least {side} a side"):
            behaviors.declare(seeing(picture(side, side - 1, layout)), 0, 1)
    assert behaviors.all() == ()
    assert behaviors.declare(seeing(picture(side, side, layout)), 0, 1).index == 0


def crowd(*shape: int, role: ObservationRole = ObservationRole.DEFAULT) -> ObservationSpec:
    """A list of entities."""
    properties = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
    return ObservationSpec(
        "crowd", np.dtype(np.float32), shape, ObservationKind.ENTITIES, role, dimension_properties=properties
    )


GOAL = ObservationSpec("goal", np.dtype(np.float32), (3,), role=ObservationRole.GOAL)
UNCONDITIONED = RunOptions.model_validate(
    {"behaviors": {NAME: {"time_horizon": 8, "network_settings": {"goal_conditioning_type": "none"}}}}
)


def test_entities_and_goals_are_taken() -> None:
    """Several lists, and goals of fixed length, whether these condition the network or not."""
    seen = (crowd(20, 5), GOAL, replace(crowd(3, 2), name="others"))
    for options in (None, UNCONDITIONED):
        assert table(options).declare(seeing(*seen), 0, 1).spec.observations == seen


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0, 3), (4, 0)])
def test_entities_of_odd_shapes_are_refused_and_not_flattened(shape: tuple[int, ...]) -> None:
    """UNTRAINABLE names the observation, its shape and the one that it shall have."""
    behaviors = table()
    with pytest.raises(Untrainable, match=r"'crowd' is a list of entities of shape .*; it must be \[max, size\]"):
        behaviors.declare(seeing(crowd(*shape)), 0, 1)
    assert behaviors.all() == ()


def test_a_goal_of_variable_length_is_refused() -> None:
    """UNTRAINABLE names it and the way out: with goal_conditioning_type none it is a list as any other."""
    goals = crowd(20, 5, role=ObservationRole.GOAL)
    with pytest.raises(
        Untrainable, match=r"'crowd' is a goal and a list of up to 20 .*network_settings.goal_conditioning_type: none"
    ) as caught:
        table().declare(seeing(goals), 0, 1)
    assert dict(caught.value.metadata) == {"behavior": NAME, "observation": "crowd"}
    assert table(UNCONDITIONED).declare(seeing(goals), 0, 1).spec.observations == (goals,)


def test_a_ring_that_memory_cannot_hold_is_refused() -> None:
    """The message says what is needed, what there is and what to change; the run file may allow more."""
    spec = make_spec(size=500_000)
    with pytest.raises(Untrainable, match=r"rollcast\.max_training_bytes is 1073741824 .*lower buffer_size") as caught:
        table(make_options(max_training_bytes=2**30)).declare(spec, 0, 1)
    need = int(caught.value.metadata["needed_bytes"])
    assert need > 40e9
    assert table(make_options(max_training_bytes=need)).declare(spec, 0, 1).index == 0


def test_behaviors_share_the_memory() -> None:
    """Each fits, all together do not: the one too many is refused, and those that are there go on."""
    options = open_default()
    one = footprint(make_spec(), options.behaviors[NAME], options.rollcast).total_bytes
    behaviors = table(open_default(max_training_bytes=2 * one))
    for name in ("A", "B"):
        behaviors.declare(make_spec(name), 0, 1)
    with pytest.raises(Untrainable, match=f"beside {2 * one} of other behaviors"):
        behaviors.declare(make_spec("C"), 0, 1)
    assert behaviors.declare(make_spec("A"), 0, 1).index == 0


def test_policies_larger_than_actors_take_are_refused() -> None:
    """A few bytes of categories may make a network of gigabytes."""
    wide = tuple(
        ObservationSpec(f"c{number}", np.dtype(np.int32), (1,), ObservationKind.CATEGORICAL, categories=(65_536,))
        for number in range(64)
    )
    with pytest.raises(Untrainable, match=r"more than \d{10} bytes; actors take at most 1073741824"):
        table(make_options(max_training_bytes=2**50)).declare(seeing(*wide), 0, 1)


def test_without_agents_a_ring_holds_one_of_them() -> None:
    """A declaration without agents passes no ring that the trainer would refuse."""
    options = make_options(device_ring_steps=2 * 10_240 + 1000 + 7, max_chunk_steps=1000)
    with pytest.raises(RingTooSmall, match="device_ring_steps"):
        table(options).declare(make_spec(), 0, 0)


def test_a_footprint_counts_ring_and_networks() -> None:
    """More observations take more of both; more actions hardly any."""
    options = make_options()
    small, large = (footprint(make_spec(size=size), options.behaviors[NAME], options.rollcast) for size in (4, 400))
    assert large.row_bytes - small.row_bytes == 4 * 396
    assert large.policy_bytes - small.policy_bytes == 4 * 396 * 128
    tall = replace(make_spec(), observations=(picture(84, 84),))
    assert footprint(tall, options.behaviors[NAME], options.rollcast).policy_bytes == 4 * 128 * (9 * 9 * 32 + 2)


def test_a_footprint_counts_attention_and_generated_weights() -> None:
    """Parameters by hand, and what a minibatch keeps: the square of the list's length, and a layer for each row."""
    options = make_options()
    settings, service = options.behaviors[NAME], options.rollcast
    attended = footprint(seeing(crowd(20, 5)), settings, service)
    embedding, attention = (5 + 1) * 128, 4 * 129 * 128
    assert attended.policy_bytes == 4 * (128 * (128 + 2) + embedding + attention)
    conditioned = footprint(seeing(GOAL), settings, service)
    hyper = 4 * 128 + 129 * 128 + 129 * 128 * 128 + 128
    assert conditioned.policy_bytes == 4 * (128 * (3 + 2) + hyper)
    batch_size = settings.hyperparameters.batch_size
    assert conditioned.batch_bytes == 3 * 4 * batch_size * 128 * 128
    assert footprint(make_spec(), settings, service).batch_bytes == 0
    assert footprint(seeing(crowd(2000, 5)), settings, service).batch_bytes > 2000**2 * 4 * batch_size
    with pytest.raises(Untrainable, match=r"\d{11} of a minibatch.*lower .*batch_size"):
        table(make_options(max_training_bytes=2**30)).declare(seeing(crowd(2000, 5)), 0, 1)


def test_a_footprint_counts_the_policys_memory() -> None:
    """A row of the ring holds one, the gates have parameters, and a minibatch leaves numbers for the way back."""
    block = {"time_horizon": 8, "network_settings": {"hidden_units": 32, "memory": {"memory_size": 12}}}
    settings = RunOptions.model_validate({"behaviors": {NAME: block}}).behaviors[NAME]
    plain = RunOptions.model_validate({"behaviors": {NAME: {**block, "network_settings": {"hidden_units": 32}}}})
    service, spec = plain.rollcast, make_spec()
    without, found = footprint(spec, plain.behaviors[NAME], service), footprint(spec, settings, service)
    assert found.row_bytes - without.row_bytes == 4 * 12
    assert found.policy_bytes - without.policy_bytes == 4 * 4 * 6 * (32 + 6 + 1)
    assert found.batch_bytes - without.batch_bytes == 3 * 4 * settings.hyperparameters.batch_size * 5 * 12


def test_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path: Path) -> None:
    """The smaller one counts; without such files, the machine's whole memory."""
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    cgroup.mkdir()
    everything = available_bytes(meminfo, cgroup)
    assert everything > 2**28
    meminfo.write_text("MemTotal:   4000 kB\nMemAvailable:   3000 kB\n")
    assert available_bytes(meminfo, cgroup) == 3000 * 1024
    (cgroup / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, cgroup) == 3000 * 1024
    (cgroup / "memory.max").write_text("1000000\n")
    (cgroup / "memory.current").write_text("400000\n")
    assert available_bytes(meminfo, cgroup) == 600_000
    meminfo.write_text("MemAvailable:\n")
    assert available_bytes(meminfo, cgroup) == 600_000
    assert 0 < available_bytes() <= everything
