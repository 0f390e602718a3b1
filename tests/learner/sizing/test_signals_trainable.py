"""Networks of reward signals are part of what is checked at a declaration."""

from __future__ import annotations

from typing import Any

import pytest
from rollcast.errors import Untrainable
from rollcast.specs import BehaviorSpec

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.settings.network import NetworkSettings
from learner.settings.options import RunOptions
from learner.settings.rewards import LearnedSignalSettings, RewardSignals, RNDSettings
from learner.sizing.footprint import footprint, signal_networks
from learner.sizing.parameters import signal_parameters
from tests.learner.ingest.parts import NAME
from tests.learner.networks.specs import behavior as specified
from tests.learner.networks.specs import entities, image, vector
from tests.learner.networks.specs import goal as goal_of

SMALL = NetworkSettings(hidden_units=16)


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
    """Seven copies of all that they learn, two of what stays as it was drawn, and what a minibatch leaves."""
    run = options(signal={"hidden_units": 16})
    spec, settings = named(vector(size=50)), run.behaviors[NAME]
    found = footprint(spec, settings, run.rollcast)
    (signal,) = (each for each in settings.reward_signals.active().values() if isinstance(each, LearnedSignalSettings))
    count = signal_parameters("curiosity", signal, spec)
    assert count.learned > 51 * 16 + 17 * 16
    assert found.signal_bytes == 4 * (7 * count.learned + 3 * 32 * 2 * 2 * 16)
    target = settings.model_copy(update={"reward_signals": RewardSignals(rnd=RNDSettings(network_settings=SMALL))})
    body = 51 * 16 + 17 * 16
    assert footprint(spec, target, run.rollcast).signal_bytes == 4 * ((7 + 2) * body + 3 * 32 * 2 * 2 * 16)
    assert found.total_bytes > found.ring_rows * found.row_bytes + found.signal_bytes


@pytest.mark.parametrize("signal", [{"hidden_units": 1_000_000}, {"hidden_units": 16_384, "num_layers": 3}], ids=str)
def test_signals_that_memory_cannot_hold_are_refused(signal: dict[str, Any]) -> None:
    """The message says how much of it is theirs: all of their layers, and not the first alone."""
    run = options(signal=signal, max_training_bytes=2**30)
    with pytest.raises(Untrainable, match=r"and \d{11,} of reward signals\).*lower"):
        declared(named(vector(size=50)), run)


def test_gail_sees_boards_by_its_own_encoder() -> None:
    """It has no tower, whatever its settings say, so that its encoder must take the board: or one actor is refused."""
    gail = {"demo_path": "x", "network_settings": {"tower": {}}}
    run = options(signal={"vis_encode_type": "match3"})
    block = run.behaviors[NAME].model_copy(update={"reward_signals": RewardSignals.model_validate({"gail": gail})})
    run = run.model_copy(update={"behaviors": {NAME: block}})
    with pytest.raises(Untrainable, match="vis_encode_type simple needs at least 20"):
        declared(named(image(shape=(10, 10, 3))), run)


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
