"""Networks of reward signals are part of what is checked at a declaration."""

from __future__ import annotations

from typing import Any

import pytest
from rollcast.errors import Untrainable
from rollcast.specs import BehaviorSpec

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.trainable import footprint, signal_networks
from learner.settings.run import RunOptions
from tests.learner.ingest.parts import NAME
from tests.learner.networks.specs import behavior as specified
from tests.learner.networks.specs import entities, image, vector
from tests.learner.networks.specs import goal as goal_of


def options(*, signal: dict[str, Any], **service: Any) -> RunOptions:
    """A run file with curiosity."""
    block = {
        "time_horizon": 8,
        "hyperparameters": {"batch_size": 32},
        "network_settings": {"goal_conditioning_type": "none", "vis_encode_type": "match3"},
        "reward_signals": {"extrinsic": {}, "curiosity": {"network_settings": signal}},
    }
    return RunOptions.model_validate({"behaviors": {NAME: block}, "rollcast": service})


def declared(spec: BehaviorSpec, run: RunOptions) -> None:
    """Declares a behavior."""
    BehaviorTable(run, Ledger()).declare(spec, 0, 1)


def named(*observations: Any) -> BehaviorSpec:
    """A behavior of the run file."""
    spec = specified(*observations, branches=(2,))
    return BehaviorSpec(NAME, spec.observations, spec.action)


def test_a_footprint_counts_the_signals() -> None:
    """Each network has eight copies of its first layer, and what a minibatch leaves in generated weights."""
    run = options(signal={"hidden_units": 16, "goal_conditioning_type": "none"})
    plain = footprint(named(vector(size=50)), run.behaviors[NAME], run.rollcast)
    assert plain.signal_bytes == 4 * 8 * 16 * 50
    aimed = options(signal={"hidden_units": 16})
    found = footprint(named(goal_of(size=3)), aimed.behaviors[NAME], aimed.rollcast)
    hyper = 4 * 16 + 17 * 16 + 17 * 16 * 16 + 16
    assert found.signal_bytes == 4 * (8 * (16 * 3 + hyper) + 3 * 32 * 16 * 16)
    assert found.total_bytes > found.ring_rows * found.row_bytes + found.signal_bytes


def test_signals_that_memory_cannot_hold_are_refused() -> None:
    """The message says how much of it is theirs."""
    run = options(signal={"hidden_units": 1_000_000, "goal_conditioning_type": "none"}, max_training_bytes=2**30)
    with pytest.raises(Untrainable, match=r"and 1600000000 of reward signals\).*lower"):
        declared(named(vector(size=50)), run)


def test_what_a_signal_cannot_see_is_refused() -> None:
    """A goal that the policy takes and the signal's own network does not, and a picture too small for its encoder."""
    lists = entities(role=goal_of().role)
    with pytest.raises(Untrainable, match="goal_conditioning_type: none"):
        declared(named(lists), options(signal={}))
    declared(named(lists), options(signal={"goal_conditioning_type": "none"}))
    with pytest.raises(Untrainable, match="vis_encode_type simple needs at least 20"):
        declared(named(image(shape=(10, 10, 3))), options(signal={}))
    declared(named(image(shape=(10, 10, 3))), options(signal={"vis_encode_type": "match3"}))


def test_signals_have_no_memory() -> None:
    """A memory block of theirs is left out, as in ML-Agents."""
    run = options(signal={"memory": {}})
    (network,) = signal_networks(run.behaviors[NAME]).values()
    assert network.memory is None
