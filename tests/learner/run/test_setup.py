"""What a run begins with."""

from __future__ import annotations

from typing import Any

import pytest

from learner.common.exits import ExitCode, UserError
from learner.run.setup import choose_seed
from learner.settings.options import RunOptions


def options(seed: int = -1) -> RunOptions:
    """A run file with a seed; -1 leaves it open."""
    return RunOptions.model_validate({"env_settings": {"seed": seed}})


def test_a_run_that_goes_on_keeps_its_seed() -> None:
    """Unless the run file sets one; a new run draws one."""
    saved = {"seed": {"run": 7}}
    assert choose_seed(options(), saved) == 7
    assert choose_seed(options(3), saved) == 3
    assert 0 <= choose_seed(options(), {}) < 10_000


@pytest.mark.parametrize("seed", [2**70, -1, True, "7", 1.5, None])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    """Random generators would refuse it once the first actor is there."""
    with pytest.raises(UserError, match=r"the seed in the run state: run is .*, and must be a whole number") as caught:
        choose_seed(options(), {"seed": {"run": seed}})
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
