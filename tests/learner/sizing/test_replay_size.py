"""The size of a replay memory is part of what is checked when a behavior is declared."""

from __future__ import annotations

from typing import Any

import pytest
from rollcast.errors import Untrainable

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.settings.options import RunOptions
from learner.sizing.footprint import footprint
from learner.sizing.parameters import twin_parameters
from learner.sizing.replay_size import replay_row_bytes, replay_size
from tests.learner.ingest.parts import NAME, make_spec


def options_of(service: dict[str, Any] | None = None, **hyper: Any) -> RunOptions:
    """A run file with sac."""
    block = {"trainer_type": "sac", "hyperparameters": hyper, "time_horizon": 64}
    return RunOptions.model_validate({"behaviors": {NAME: block}, "rollcast": service or {}})


def test_a_memory_that_does_not_fit_is_refused_by_name() -> None:
    """The message says what is too large and which setting makes it smaller."""
    service = {"max_training_bytes": 2**28}
    with pytest.raises(Untrainable, match=r"a replay memory of \d+ rows of \d+ bytes.*lower buffer_size") as caught:
        BehaviorTable(options_of(service, buffer_size=10_000_000), Ledger()).declare(make_spec(), 0, 1)
    assert int(caught.value.metadata["needed_bytes"]) > 2**28
    assert BehaviorTable(options_of(service), Ledger()).declare(make_spec(), 0, 1).index == 0


def test_a_footprint_counts_every_row() -> None:
    """Rows and their bytes are those of the memory itself; its networks are more than those of an actor-critic."""
    options, spec = options_of(buffer_size=30_000), make_spec(size=50)
    found = footprint(spec, options.behaviors[NAME], options.rollcast)
    size = replay_size(replay_row_bytes(spec), buffer_size=30_000, time_horizon=64)
    assert (found.ring_rows, found.row_bytes) == (size.capacity_rows, replay_row_bytes(spec))
    assert found.total_bytes == size.capacity_rows * found.row_bytes + found.network_bytes + found.batch_bytes
    critics = twin_parameters(spec, options.behaviors[NAME].network_settings, 1)
    assert found.network_bytes == 7 * found.policy_bytes + 4 * (7 + 2) * critics
    assert options.behaviors[NAME].traits.replay


def test_the_ring_of_other_trainers_is_no_concern_of_it() -> None:
    """A fixed ring and a limit of the lag are for trainers that learn from fresh steps."""
    service = {"device_ring_steps": 100, "max_policy_lag": 3}
    behavior = BehaviorTable(options_of(service), Ledger()).declare(make_spec(), 0, 16)
    assert behavior.max_policy_lag == 0
