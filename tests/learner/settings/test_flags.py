"""Every flag sets a place that exists."""

from __future__ import annotations

import pytest

from learner.settings.flags import FLAGS, flag_name
from learner.settings.options import RunOptions
from learner.settings.slots import slot_at


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_sets_a_place_in_the_run_file(flag: str) -> None:
    """A renamed setting cannot leave its flag behind."""
    assert slot_at(RunOptions, {}, FLAGS[flag]) is not None
    assert flag == flag_name(flag)


def test_the_flags_of_mlagents_are_there() -> None:
    """Known command lines work."""
    known = {"env", "resume", "force", "run-id", "initialize-from", "seed", "inference", "base-port", "num-envs"}
    assert known | {"env-args", "results-dir", "time-scale", "no-graphics", "torch-device", "debug", "load"} <= set(
        FLAGS
    )
