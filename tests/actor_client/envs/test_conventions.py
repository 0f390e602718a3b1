"""Tests conventions of other libraries: what is used, refused, or warned about once, with advice that helps."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from structlog.testing import capture_logs

from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.factory import make_env_batch
from actor_client.envs.wrappers import Wrapping
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.envs.toys import Toy
from tests.documents import section

HERE = __name__
BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
MASK = np.array([1, 0], np.int8)


def made(
    env: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    num_envs: int = 1,
    vector: bool = False,
    wrap: Any = None,
    **kwargs: Any,
) -> EnvBatch:
    """Makes environments of a callable, which gets a name in this module."""
    monkeypatch.setattr(sys.modules[HERE], "chosen", env, raising=False)
    monkeypatch.setattr(sys.modules[HERE], "wrapper", wrap, raising=False)
    wrapping = Wrapping(wrap=(f"{HERE}:wrapper",) if wrap else ())
    return make_env_batch(
        f"{HERE}:chosen", num_envs=num_envs, vector=vector, env_kwargs=kwargs, wrapping=wrapping, warns=True
    )


class Differing(Toy):
    """Each second copy has other spaces."""

    number = 0

    def __init__(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        Differing.number += 1
        super().__init__(**(second if Differing.number % 2 else first))


class Info(Toy):
    """Has something in the info of its resets, and perhaps a method for masks."""

    def __init__(self, info: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.info = dict(info or {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        return super().reset(seed=seed, options=options)[0], self.info


class MaskMethod(Toy):
    """Has the method of sb3-contrib."""

    def action_masks(self) -> Any:
        """Returns a mask."""
        return MASK


class Rewarding(Toy):
    """Pays what it is told."""

    reward: Any = 0.0

    def step(self, action: Any) -> Any:
        """Takes a step."""
        observation, _, terminated, truncated, info = super().step(action)
        return observation, self.reward, terminated, truncated, info


class Unseeded(Toy):
    """Was written for gym before 0.26."""

    def reset(self) -> Any:  # type: ignore[override]
        """Begins an episode."""
        return super().reset()


class Pair(Toy):
    """Has two agents, as RLlib's MultiAgentEnv."""

    possible_agents = ("a", "b")

    def __init__(self, *, as_list: bool = False) -> None:
        super().__init__()
        one = spaces.Discrete(2)
        self.action_space = [one, one] if as_list else spaces.Dict({"a": one, "b": one})  # type: ignore[assignment]


DIFFERENCES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"observation_space": BOX},
        {"observation_space": spaces.Box(-1.0, 1.0, (4,), np.float32)},
        "obs/obs: float32[4] and float32[3]",
    ),
    (
        {"observation_space": BOX},
        {"observation_space": spaces.Box(0, 255, (3,), np.float32)},
        "obs/obs scale: 255.0 and 0.0",
    ),
    (
        {"observation_space": spaces.Discrete(3)},
        {"observation_space": spaces.Discrete(3, start=1)},
        "first value of obs",
    ),
    ({"observation_space": spaces.Dict(a=BOX)}, {"observation_space": spaces.Dict(b=BOX)}, "obs/a"),
    ({"action_space": spaces.Discrete(2)}, {"action_space": spaces.Discrete(3)}, "discrete_branches: [3] and [2]"),
    ({"action_space": spaces.Discrete(2)}, {"action_space": spaces.Discrete(2, start=7)}, "first action: array(7)"),
    ({"action_space": BOX}, {"action_space": spaces.Box(-2.0, 1.0, (3,), np.float32)}, "continuous_low"),
    ({"action_space": BOX}, {"action_space": spaces.Box(-1.0, 1.0, (3,), np.float64)}, "type of actions"),
    ({"action_space": BOX}, {"action_space": spaces.Box(-1.0, 1.0, (1, 3), np.float32)}, "shape of actions"),
]


@pytest.mark.parametrize(("first", "second", "words"), DIFFERENCES)
def test_copies_with_other_spaces_are_refused(
    first: dict[str, Any], second: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies whose data would mean something else than those of the first end the actor before it connects."""
    Differing.number = 0
    with pytest.raises(ActorError, match=re.escape("environment 1 has other spaces than environment 0: ")) as raised:
        made(Differing, monkeypatch, num_envs=3, first=first, second=second)
    assert raised.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT
    assert words in raised.value.message
    made(Differing, monkeypatch, num_envs=3, first=first, second=first)


def test_copies_that_are_one_object_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callable that returns the same object again would mix episodes; one environment, or new ones, as advised, work."""
    shared = Toy()
    with pytest.raises(ActorError, match="the same object for environments 0 and 1") as raised:
        made(lambda: shared, monkeypatch, num_envs=2)
    assert "--num-envs 1" in raised.value.message
    with pytest.raises(ActorError, match="the same object"):
        made(lambda: gymnasium.Wrapper(shared), monkeypatch, num_envs=2)
    made(lambda: shared, monkeypatch)
    made(Toy, monkeypatch, num_envs=2)


def test_stacked_images_are_stacked_in_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """FrameStackObservation of colored images gives one image with all channels, the oldest first."""
    image = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    batch = made(lambda: gymnasium.wrappers.FrameStackObservation(Toy(image), 4), monkeypatch)
    (spec,) = batch.spec.observations
    assert spec.shape == (36, 40, 12)
    assert spec.dtype == np.uint8
    batch.reset([1])
    for _ in range(3):
        seen = batch.step(None, np.zeros((1, 1), np.int32)).observations[0][0]
    shown = batch._environments[0].unwrapped.shown  # type: ignore[attr-defined]
    np.testing.assert_array_equal(seen, np.concatenate(shown[-4:], axis=2))


WARNED: list[tuple[str, Any, dict[str, Any], str, str]] = [
    (
        "statistics",
        lambda: gymnasium.wrappers.NormalizeObservation(Toy()),
        {},
        "wrapper_keeps_statistics",
        "normalize: true",
    ),
    ("statistics", lambda: gymnasium.wrappers.NormalizeReward(Toy()), {}, "wrapper_keeps_statistics", "strength"),
    ("masks", MaskMethod, {}, "mask_not_used", "info['action_mask']"),
    ("masks", lambda: Info({"legal_actions": MASK}), {}, "mask_not_used", "info['action_mask']"),
    (
        "masks",
        lambda: Toy(spaces.Dict(observation=BOX, action_mask=spaces.MultiBinary(2))),
        {},
        "mask_not_used",
        "info['action_mask']",
    ),
    ("precision", lambda: Toy(spaces.Box(0, 2**40, (2,), np.int64)), {}, "observation_loses_precision", "Discrete"),
    (
        "precision",
        lambda: Toy(spaces.Dict(a=BOX, b=spaces.Box(0, 2**40, (2,), np.int64))),
        {},
        "observation_loses_precision",
        "scale",
    ),
    ("seeds", lambda seed=None: Toy(), {}, "constructor_seed_not_given", "self.np_random"),
    ("seeds", lambda seed: Toy(), {"seed": 3}, "copies_share_a_seed", "self.np_random"),
]


@pytest.mark.parametrize(("_kind", "env", "kwargs", "event", "advice"), WARNED)
def test_what_is_not_used_is_said_once(
    _kind: str, env: Any, kwargs: dict[str, Any], event: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one warning with its consequence and what to do; later resets and other environments add none."""
    with capture_logs() as logs:
        batch = made(env, monkeypatch, num_envs=2, **kwargs)
        batch.reset([1, 2])
        batch.reset([3, 4])
    found = [line for line in logs if line["log_level"] == "warning"]
    assert [line["event"] for line in found] == [event]
    assert advice in found[0]["action"]
    assert found[0]["consequence"]


def test_ordinary_environments_get_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks where they belong, whole numbers that float32 holds, and statistics of episodes are as they should be."""
    ordinary = [
        lambda: Info({"action_mask": MASK, "legal_actions": MASK}),
        lambda: Toy(spaces.Box(0, 2**20, (2,), np.int64)),
        lambda: gymnasium.wrappers.RecordEpisodeStatistics(Toy()),
        lambda: Toy(action_space=BOX),
    ]
    with capture_logs() as logs:
        for env in ordinary:
            made(env, monkeypatch, num_envs=2).reset([1, 2])
    assert logs == []


class _OldBox:
    shape, low, high = (3,), 0, 1


def _old_gym() -> Any:
    _OldBox.__module__ = "gym.spaces.box"
    env = Toy()
    env.observation_space = _OldBox()  # type: ignore[assignment]
    return env


class _Late(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = None  # type: ignore[assignment]


REFUSED: list[tuple[Any, str, Any]] = [
    (_old_gym, "its observation space is of the package gym, .* write `import gymnasium as gym`", Toy),
    (Unseeded, r"its reset\(\) takes no seed; write def reset\(self, \*, seed=None, options=None\)", Toy),
    (Pair, "has several agents; .* use rollcast act pettingzoo", None),
    (lambda: Pair(as_list=True), "has several agents; .* use rollcast act pettingzoo", None),
    (
        _Late,
        "its observation space is not known when it is made; set observation_space and action_space in __init__",
        Toy,
    ),
]


@pytest.mark.parametrize(("env", "message", "mended"), REFUSED)
def test_other_interfaces_are_refused_with_a_way_out(
    env: Any, message: str, mended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is for the cause, and who follows it has an environment that works."""
    with pytest.raises(ActorError, match=message) as raised:
        made(env, monkeypatch)
    assert raised.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT
    if mended is not None:
        made(mended, monkeypatch).reset([1])


def test_the_package_gym_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that imports gym gets the line to write, with which it works."""
    text = "import gym\nfrom tests.actor_client.envs.toys import Toy\nclass Old(Toy):\n    observation_space = gym.spaces.Discrete(2)\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_gym.py").write_text(text)
    with pytest.raises(ActorError, match="write `import gymnasium as gym`"):
        make_env_batch("of_gym:Old", num_envs=1)
    (tmp_path / "of_gymnasium.py").write_text(text.replace("import gym\n", "import gymnasium as gym\n"))
    make_env_batch("of_gymnasium:Old", num_envs=1).reset([1])


def _added(env: Any) -> Any:
    return gymnasium.wrappers.TransformReward(env, sum)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reward", "message", "mended"),
    [
        (np.array([1.0, 2.0]), "got ndarray of shape [2]; add its parts up", _added),
        ([1.0, 2.0], "got list of shape [2]; add its parts up", _added),
        ({"a": 1.0, "b": 1.0}, "got a dictionary of a, b; if these are agents, use rollcast act pettingzoo", None),
        ("0.5", "got '0.5'; return a float", None),
        (None, "got None; return a float", None),
        (1 + 2j, "got complex of shape []", None),
    ],
)
@pytest.mark.parametrize("num_envs", [1, 2])
def test_rewards_are_numbers(
    reward: Any, message: str, mended: Any, num_envs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but one number is refused by name; the function that the message advises makes it work."""

    class Paying(Rewarding):
        pass

    Paying.reward = reward
    actions = np.zeros((num_envs, 1), np.int32)
    batch = made(Paying, monkeypatch, num_envs=num_envs)
    batch.reset(range(num_envs))
    with pytest.raises(EnvironmentFailed, match=re.escape(f"the reward must be one number; {message}")):
        batch.step(None, actions)
    if mended is not None:
        batch = made(Paying, monkeypatch, num_envs=num_envs, wrap=mended)
        batch.reset(range(num_envs))
        assert batch.step(None, actions).rewards.tolist() == [3.0] * num_envs


@pytest.mark.parametrize("reward", [1, True, np.float64(1.0), np.array(1.0), np.array([1.0]), np.array([[1]], np.int8)])
def test_all_kinds_of_one_number_are_rewards(reward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of Python and numpy, and arrays of one number, are rewards."""
    monkeypatch.setattr(Rewarding, "reward", reward)
    batch = made(Rewarding, monkeypatch, num_envs=2)
    batch.reset([1, 2])
    assert batch.step(None, np.zeros((2, 1), np.int32)).rewards.tolist() == [1.0, 1.0]


def test_the_page_lists_the_events() -> None:
    """The page's table of conventions names each warning."""
    table = section("actor_client/envs/README.md", "Conventions")
    assert set(re.findall(r"`([a-z]+_[a-z_]+)`", table)) >= {event for _, _, _, event, _ in WARNED}
