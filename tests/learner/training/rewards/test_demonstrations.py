"""Tests demonstrations as transitions in the order of time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from rollcast.demonstrations.writing import Action, DemonstrationWriter
from rollcast.enums import Squash
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.transforms import ActionTransform
from structlog.testing import capture_logs

from learner.shared.exits import ExitCode, UserError
from tests.learner.training.networks.specs import behavior, vector
from tests.learner.training.rewards.made import SPECS
from tests.learner.training.rewards.recorded import demonstrate, loaded
from tests.protos.demonstrations.recordings import demonstration, record


@pytest.mark.parametrize("name", SPECS)
def test_every_kind_of_behavior(tmp_path: Path, name: str) -> None:
    """Steps have the ring's types, and the next observation is that of the next step."""
    spec = SPECS[name]
    buffer = loaded(demonstrate(tmp_path / "x.demo", spec), spec)
    steps = buffer.at(torch.arange(len(buffer)))
    assert (len(buffer), buffer.lengths.tolist()) == (8, [5, 3])
    assert steps.reward.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert steps.terminated.tolist() == [0, 0, 0, 0, 1, 0, 0, 0]  # the second episode was interrupted
    for observation, now, then in zip(spec.observations, steps.observations, steps.next_observations, strict=True):
        assert now.numpy().dtype == observation.dtype
        assert tuple(now.shape[1:]) == observation.shape
        assert torch.equal(now[1:5], then[:4])
    assert (steps.continuous is None) == (not spec.action.continuous_size)
    assert (steps.discrete is None) == (not spec.action.discrete_branches)


@pytest.mark.parametrize("squash", [Squash.CLIP3_DIV3, Squash.TANH, Squash.NONE])
def test_actions_are_draws_that_make_them(tmp_path: Path, squash: Squash) -> None:
    """The actors' transform maps the buffer's draws to the environment's actions."""
    low, high = (-2.0, 0.0, -np.inf), (2.0, 10.0, np.inf)
    spec = BehaviorSpec("Box", (vector(),), ActionSpec(3, (), low, high))
    taken = np.array([1.5, 2.5, -7.0], np.float32)
    buffer = loaded(demonstrate(tmp_path / "box.demo", spec, [2], lambda _: Action(taken)), spec, squash)
    draws = buffer.at(torch.tensor([0])).continuous
    assert draws is not None
    transform = ActionTransform(squash, low, high)
    assert np.allclose(transform.apply(draws.numpy())[0], taken, atol=1e-5)


def test_agents_that_take_turns_are_put_in_order(tmp_path: Path) -> None:
    """Steps of an episode are consecutive, for any order of recording."""
    spec = behavior(vector(size=1), branches=(9,))
    for name, numbers in (("a", (1, 2)), ("b", (3,))):
        with DemonstrationWriter(tmp_path / f"{name}.demo", spec) as writer:
            for step in range(3):
                for number in numbers:
                    seen = [np.array([10 * number + step], np.float32)]
                    writer.step(number, seen, Action(discrete=np.array([number + step])), 0.0)
            for number in numbers:
                writer.end(number, [np.array([10 * number + 3], np.float32)], interrupted=False)
    buffer = loaded(tmp_path, spec)
    steps = buffer.at(torch.arange(9))
    assert buffer.lengths.tolist() == [3, 3, 3]
    assert steps.observations[0].ravel().tolist() == [10, 11, 12, 20, 21, 22, 30, 31, 32]
    assert steps.discrete is not None
    assert steps.discrete.ravel().tolist() == [1, 2, 3, 2, 3, 4, 3, 4, 5]


def test_masks_go_with_their_steps(tmp_path: Path) -> None:
    """Each step has its mask; files without masks allow everything."""
    spec = behavior(vector(), branches=(3, 2))
    allowed = np.array([[1, 1, 0, 1, 1], [1, 0, 1, 0, 1]], np.uint8)
    choices = np.array([[0, 0], [2, 1]], np.int32)
    taken = (Action(discrete=choice, masks=mask) for choice, mask in zip(choices, allowed, strict=True))
    demonstrate(tmp_path / "a.demo", spec, [2], lambda _: next(taken))
    masks = loaded(tmp_path / "a.demo", spec).masks_at(torch.tensor([1, 0, 1]))
    assert masks is not None
    assert masks.tolist() == allowed[[1, 0, 1]].tolist()
    demonstrate(tmp_path / "b.demo", spec, [1])
    both = loaded(tmp_path, spec).masks_at(torch.arange(3))
    assert both is not None
    assert both.tolist() == [*allowed.tolist(), [1] * 5]
    assert loaded(tmp_path / "b.demo", spec).masks_at(torch.arange(1)) is None


def test_what_was_done_was_allowed(tmp_path: Path) -> None:
    """A demonstrated choice counts as allowed, and the log has the number of corrections."""
    spec = behavior(vector(), branches=(3, 2))
    action = Action(discrete=np.array([1, 0], np.int32), masks=np.array([1, 0, 0, 0, 1], np.uint8))
    file = demonstrate(tmp_path / "a.demo", spec, [2, 2], lambda _: action)
    with capture_logs() as logs:
        masks = loaded(file, spec).masks_at(torch.tensor([3]))
    assert masks is not None
    assert masks.tolist() == [[1, 1, 0, 1, 1]]
    (warning,) = [entry for entry in logs if entry["event"] == "demonstrations_against_masks"]
    assert (warning["log_level"], warning["choices"]) == ("warning", 8)


def test_what_cannot_be_read_is_a_fault_of_the_run_file(tmp_path: Path) -> None:
    """A file that cannot be read is an error of one line with setting, file and reason."""
    spec = behavior(vector(), branches=(3,))
    with pytest.raises(UserError, match=r"demo_path: .*none\.demo: cannot be opened") as caught:
        loaded(tmp_path / "none.demo", spec)
    assert caught.value.exit_code is ExitCode.RUN_FILE
    demonstrate(tmp_path / "x.demo", spec)
    with pytest.raises(UserError, match=r"the run's has 0 and \[7\]"):
        loaded(tmp_path / "x.demo", behavior(vector(), branches=(7,)))
    with capture_logs() as lines:
        loaded(tmp_path / "x.demo", spec)
    assert (lines[0]["episodes"], lines[0]["steps"], lines[0]["mean_return"]) == (2, 8, 6.5)


def test_where_actions_were_found_is_told_with_its_evidence(tmp_path: Path) -> None:
    """Files are named once for each way, and a guess is a warning that names the key against it."""
    spec = behavior(vector(size=1), branches=(5,))
    demonstrate(tmp_path / "ours.demo", spec)
    unitys = [record(float(n), choices=[n], done=n == 3) for n in (1, 2, 3)]
    for name in ("a", "b"):
        demonstration(tmp_path / f"{name}.demo", spec, [record(0.0, choices=[0])] * (name == "b") + unitys)
    with capture_logs() as logs:
        loaded(tmp_path, spec)
    told = [entry for entry in logs if entry["event"] == "demonstrations_paired"]
    assert [(entry["files"], entry["demo_pairing"], entry["log_level"]) for entry in told] == [
        (["a.demo", "b.demo"], "next_record", "warning"),
        (["ours.demo"], "same_record", "info"),
    ]
    assert told[0]["advice"] == "if this is wrong, set demo_pairing"
    assert told[1]["evidence"] == "2 of 2 episodes, or the file, end without an action"
