"""Wrappers that flags add: the user's own, repeated actions, a limit of steps, and videos."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from actor_client.envs.errors import STEP_VALUES, UnknownEnvironment, count_fault, one_line
from actor_client.envs.imports import import_callable
from actor_client.envs.video import RENDER_MODE, FilmedVector, VideoRecorder

WITHOUT_LIMIT: Final = -1
"""Tells gymnasium.make to omit an id's registered limit of steps."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """Wrappers around each environment, from the innermost to the outermost.

    Attributes:
        wrap: Each `module:callable` is called with the environment and returns the wrapped one.
        video: Films the first environment.
        frame_skip: Steps for which an action is repeated.
        max_episode_steps: Actions after which an episode is truncated; None keeps the environment's own limit.
        frame_stack: Observations that are stacked into one.
    """

    wrap: tuple[str, ...] = ()
    video: VideoRecorder | None = None
    frame_skip: int = 1
    max_episode_steps: int | None = None
    frame_stack: int = 1

    def check(self, env: str, *, vector: bool, is_callable: bool) -> None:
        """Refuses wrappers that a vector environment does not support.

        Raises:
            UnknownEnvironment: A wrapper is not supported.
        """
        if vector and self.frame_skip > 1:
            raise UnknownEnvironment(
                f"--frame-skip {self.frame_skip} does not work with --vector: if an episode ended during the "
                "repetitions, the next one would begin with the old action; repeat actions in the environment "
                "itself"
            )
        if vector and is_callable and self.max_episode_steps is not None:
            raise UnknownEnvironment(
                f"--max-episode-steps {self.max_episode_steps} does not work with --vector and {env}: only the "
                "vector environment itself can reset a copy; pass the limit to it with --env-kwargs"
            )

    def arguments(self, *, vector: bool, is_callable: bool, is_first: bool) -> Mapping[str, Any]:
        """Returns the arguments for making the environment itself."""
        given: dict[str, Any] = {}
        if self.video is not None and is_first:
            given["render_mode"] = RENDER_MODE
        if self.max_episode_steps is not None and not is_callable:
            given["max_episode_steps"] = self.max_episode_steps if vector else WITHOUT_LIMIT
        return given

    def apply(self, env: str, environment: Any, *, vector: bool, is_first: bool) -> Any:
        """Returns an environment with its wrappers.

        Raises:
            ActorError: A wrapper cannot be imported or applied, or the environment cannot be filmed.
        """
        for named in self.wrap:
            module, _, name = named.partition(":")
            wrapper = import_callable(f"--wrap {named}", module, name)
            try:
                environment = wrapper(environment)
            except Exception as error:
                raise UnknownEnvironment(f"--wrap {named} cannot wrap {env}: {one_line(error)}", error) from error
            if not callable(getattr(environment, "step", None)):
                raise UnknownEnvironment(
                    f"--wrap {named} returned {type(environment).__name__}; it must return an environment"
                )
        video = self.video if is_first else None
        if video is not None:
            video.check(env, environment)
        if vector:
            return environment if video is None else FilmedVector(environment, video)
        if self.frame_skip > 1 or self.max_episode_steps is not None or video is not None:
            return Repeated(environment, self.frame_skip, self.max_episode_steps, video)
        return environment


class Repeated:
    """Repeats each action and adds up the rewards, truncates episodes at the limit of steps, and films all steps.

    Args:
        environment: An object with the interface of `gymnasium.Env`.
        repeats: Steps of the environment for each action; fewer if the episode ends.
        max_steps: Actions of an episode; None = no limit.
        video: Films each step of the environment; None = no video.
    """

    def __init__(self, environment: Any, repeats: int, max_steps: int | None, video: VideoRecorder | None) -> None:
        self._environment = environment
        self._repeats = repeats
        self._max_steps = max_steps
        self._video = video
        self._steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, **arguments: Any) -> Any:
        """Begins an episode."""
        result = self._environment.reset(**arguments)
        self._steps = 0
        if self._video is not None:
            self._video.begin(self._environment)
        return result

    def step(self, action: Any) -> Any:
        """Takes an action."""
        total: Any = 0.0
        self._steps += 1
        for left in reversed(range(self._repeats)):
            result = self._environment.step(action)
            if count_fault("step", result, STEP_VALUES) is not None:
                return result  # the batch reports the fault
            observation, reward, terminated, truncated, info = result
            total = total + reward
            truncated = truncated or (left == 0 and self._steps == self._max_steps)
            if self._video is not None:
                self._video.step(self._environment, ended=bool(terminated or truncated))
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info

    def close(self) -> None:
        """Ends the video and the environment."""
        if self._video is not None:
            self._video.cut()
        self._environment.close()
