"""Small environments for tests, made by `module:callable`."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

MODULE = "tests.actor_client.envs.toys"


class Toy(gymnasium.Env[Any, Any]):
    """Returns samples of its spaces, remembers every action, and ends when told to.

    Args:
        observation_space: What it shows.
        action_space: What it takes; each action is checked.
        length: Steps of an episode; the last is truncated.
        reset_fails: The numbers of the calls of `reset` that raise, counted from 0.
        step_fails: The numbers of the calls of `step` that raise, counted from 0.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        *,
        length: int = 5,
        reset_fails: tuple[int, ...] = (),
        step_fails: tuple[int, ...] = (),
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.length = length
        self.reset_fails = reset_fails
        self.step_fails = step_fails
        self.actions: list[Any] = []
        self.shown: list[Any] = []
        self.seeds: list[int | None] = []
        self.resets = 0
        self.steps = 0
        self.closed = False

    def _show(self) -> Any:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        self.resets += 1
        self.seeds.append(seed)
        if self.resets - 1 in self.reset_fails:
            raise RuntimeError(f"reset {self.resets - 1} fails\nwith a second line")
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = self.length
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Counts down."""
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is not in {self.action_space}")
        self.steps += 1
        if self.steps - 1 in self.step_fails:
            raise RuntimeError(f"step {self.steps - 1} fails")
        self.actions.append(action)
        self.left -= 1
        info = {"left": self.left, "nested": {"half": 0.5}, "text": "no number"}
        return self._show(), 1.0, False, self.left == 0, info

    def close(self) -> None:
        """Records that it was closed."""
        self.closed = True


class Reusing(Toy):
    """Returns the same array again and again, with the number of steps and resets so far in it."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0.0, 1e9, (1,), np.float32), length=3)
        self.array = np.zeros(1, np.float32)

    def _show(self) -> Any:
        self.array[0] = 100 * self.resets + self.steps
        return self.array


class Masked(Toy):
    """Allows one choice at a time by an action mask, as Taxi does; the last mask of an episode allows none."""

    def __init__(self, length: int = 4, *, stuck_at: int = -1) -> None:
        super().__init__(action_space=spaces.Discrete(3, start=10), length=length)
        self.stuck_at = stuck_at

    def _mask(self) -> dict[str, Any]:
        mask = np.zeros(3, np.int8)
        if self.left and self.steps != self.stuck_at:
            mask[self.left % 3] = 1
        return {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        observation, _ = super().reset(seed=seed)
        return observation, self._mask()

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Raises if the mask forbids the action."""
        if action - 10 != self.left % 3:
            raise ValueError(f"action {action} is forbidden")
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, self._mask()


def toy(**kwargs: Any) -> Toy:
    """Returns an environment with vectors and two choices."""
    return Toy(**kwargs)


def nested() -> Toy:
    """Returns an environment with Dict, Tuple, image, matrix, categories and bits."""
    return Toy(
        spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (24, 32, 3), np.uint8),
                "depth": spaces.Box(0.0, 1.0, (24, 20), np.float64),
                "inner": spaces.Tuple(
                    (
                        spaces.Discrete(4, start=-2),
                        spaces.Dict({"bits": spaces.MultiBinary(6), "a b": spaces.MultiDiscrete([2, 3, 4])}),
                    )
                ),
                "speed": spaces.Box(-1.0, 1.0, (), np.float64),
            }
        ),
        spaces.MultiDiscrete([3, 2, 5], start=[0, 7, -1]),
    )


def continuous() -> Toy:
    """Returns an environment with a matrix of continuous actions, two of them without bounds."""
    low = np.array([[-2.0, 0.0], [-np.inf, -1.0]], np.float64)
    high = np.array([[2.0, 10.0], [np.inf, np.inf]], np.float64)
    return Toy(action_space=spaces.Box(low, high, dtype=np.float64))


def bits() -> Toy:
    """Returns an environment whose actions are bits."""
    return Toy(action_space=spaces.MultiBinary((2, 2)))


def broken() -> Toy:
    """Raises, so that no environment is made."""
    raise OSError("the simulator is not installed")


def wrong_shape() -> Toy:
    """Returns an environment whose observations have a wrong shape from the third on."""
    made = Toy()
    show = made._show
    made._show = lambda: np.zeros(7, np.float32) if len(made.shown) > 1 else show()  # type: ignore[method-assign]
    return made


def several(num_envs: int, *, mode: str = "NextStep", kind: str = "toy", **kwargs: Any) -> Any:
    """Returns a vector environment with the given reset mode."""
    makers = {"toy": toy, "nested": nested, "masked": Masked}
    return gymnasium.vector.SyncVectorEnv(
        [lambda: makers[kind](**kwargs) for _ in range(num_envs)],
        autoreset_mode=gymnasium.vector.AutoresetMode(mode),
    )


def nothing() -> None:
    """Returns nothing."""


def unboxed() -> Any:
    """Imports a module that is not installed."""
    raise gymnasium.error.DependencyNotInstalled("Box2D is not installed, run `pip install swig`")


def jointless() -> Any:
    """Imports another module that is not installed."""
    raise gymnasium.error.DependencyNotInstalled('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`')


class OldStep(Toy):
    """Returns four values from `step`, as before `truncated` existed."""

    def step(self, action: Any) -> Any:
        """Returns four values."""
        observation, reward, _, ended, info = super().step(action)
        return observation, reward, ended, info


class OldReset(Toy):
    """Returns only an observation from `reset`, as before infos existed."""

    def reset(self, **arguments: Any) -> Any:
        """Returns the observation alone."""
        return super().reset(**arguments)[0]


class NoInfo(Toy):
    """Returns None as the info of a reset."""

    def reset(self, **arguments: Any) -> Any:
        """Returns None in its place."""
        return super().reset(**arguments)[0], None


class Rewarding(Toy):
    """Returns given rewards, one after another."""

    def __init__(self, *rewards: float, length: int) -> None:
        super().__init__(length=length)
        self.rewards = list(rewards)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes the next reward."""
        observation, _, terminated, truncated, info = super().step(action)
        return observation, self.rewards.pop(0), terminated, truncated, info


not_callable = 3


class Counting(Toy):
    """Shows the number of its steps as a vector, board planes and a category; can be rendered.

    Args:
        length: Steps of an episode.
        height: Of its pictures.
        width: Of its pictures.
        render_mode: As gymnasium's environments take it.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self, length: int = 5, *, height: int = 18, width: int = 21, render_mode: str | None = None, fails_at: int = -1
    ) -> None:
        board = spaces.Box(0, 255, (2, 6, 6), np.uint8)
        board.layout = "CHW"  # type: ignore[attr-defined]
        picture = spaces.Box(0, 255, (20, 20, 3), np.uint8)
        parts = {
            "board": board,
            "count": spaces.Discrete(100),
            "number": spaces.Box(-100, 100, (2,)),
            "picture": picture,
        }
        fails = () if fails_at < 0 else (fails_at,)
        super().__init__(spaces.Dict(parts), length=length, step_fails=fails)
        self.render_mode = render_mode
        self._size = height, width

    def _show(self) -> Any:
        count = self.length - self.left
        return {
            "board": np.full((2, 6, 6), count, np.uint8),
            "count": count,
            "number": np.full(2, count, np.float32),
            "picture": np.full((20, 20, 3), count, np.uint8),
        }

    def render(self) -> Any:
        """Returns a picture whose brightness is the number of steps, times ten."""
        return np.full((*self._size, 3), 10 * (self.length - self.left), np.uint8)


def counting(**arguments: Any) -> Counting:
    """Counts its steps."""
    return Counting(**arguments)


def counting_together(num_envs: int, *, mode: str = "NextStep", **arguments: Any) -> Any:
    """Returns a vector environment of `Counting`, rendered by gymnasium."""
    return gymnasium.vector.SyncVectorEnv(
        [lambda: Counting(**arguments) for _ in range(num_envs)], autoreset_mode=gymnasium.vector.AutoresetMode(mode)
    )


class Plain:
    """Has the interface of `gymnasium.Env` without extending it."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        """Takes a step, which never ends the episode."""
        return np.zeros(3, np.float32), 1.0, False, False, {}

    def close(self) -> None:
        """Does nothing."""


def twice_the_reward(environment: Any) -> Any:
    """Wraps an environment so that rewards are doubled."""
    return gymnasium.wrappers.TransformReward(environment, lambda reward: 2 * float(reward))


def one_more(environment: Any) -> Any:
    """Wraps an environment so that rewards are one larger."""
    return gymnasium.wrappers.TransformReward(environment, lambda reward: float(reward) + 1)


def one_more_of_each(environment: Any) -> Any:
    """Wraps a vector environment so that rewards are one larger."""
    return gymnasium.wrappers.vector.TransformReward(environment, lambda rewards: rewards + 1)


def forgets(environment: Any) -> None:
    """Returns nothing instead of a wrapped environment."""


def pictureless(render_mode: str | None = None) -> Toy:
    """Takes a render mode and forgets it."""
    return Toy()


def blind(render_mode: str | None = None) -> Toy:
    """Returns an environment that renders nothing."""
    made = Counting(render_mode=render_mode)
    made.render = lambda: None  # type: ignore[method-assign]
    return made
