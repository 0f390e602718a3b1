"""Users' functions that play opponents in place of the policies of matches."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec

from actor_client.envs.errors import UnknownEnvironment, one_line
from actor_client.envs.imports import import_callable
from actor_client.envs.tracebacks import place_of, traceback_of
from actor_client.exits import ActorError, ExitCode
from actor_client.policy.actions import Actions, FloatArray, MaskArray

_SHOWN: Final = 16
"""Most values of a wrong action that a message shows."""


class ScriptedOpponent:
    """A user's function that acts for all agents that are opponents.

    It is called with the observations of B agents of one behavior: the array ``[B, *shape]`` of the only observation, or
    a dictionary of such arrays by name. The second argument is their masks, uint8 ``[B, sum of branches]`` with 1 =
    allowed, or None if everything is allowed. It returns one row per agent, ``[B, n + b]``: the axes in the
    environment's own values, then a choice for each branch. For one axis or branch, ``[B]`` will do.

    Args:
        name: `module:callable`, as in `--opponent`; a class is made once. The working directory is searched too.

    Attributes:
        name: The same text, under which the learner rates it.

    Raises:
        ActorError: There is no such callable, or the class cannot be made.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        module, _, attribute = name.partition(":")
        try:
            found = import_callable(f"--opponent {name}", module, attribute, "a callable that returns actions")
        except UnknownEnvironment as error:
            raise ActorError(ExitCode.USAGE, error.message, error.traceback) from error
        self._function: Callable[..., Any] = self._called(found) if isinstance(found, type) else found

    def act(self, spec: BehaviorSpec, observations: Sequence[NDArray[Any]], masks: MaskArray | None) -> Actions:
        """Returns the actions of B agents.

        Args:
            spec: Observations and actions of their behavior.
            observations: One array per observation, ``[B, *shape]`` each.
            masks: uint8 ``[B, sum of branches]``, 1 = allowed; None = all allowed.

        Raises:
            ActorError: The function failed, or returned something else than actions.
        """
        named = {each.name: values for each, values in zip(spec.observations, observations, strict=True)}
        seen: Any = named if len(named) > 1 else observations[0]
        agents, action = len(observations[0]), spec.action
        result = self._called(lambda: np.asarray(self._function(seen, masks), np.float32))
        if result.shape != (agents, action.factors) and not (action.factors == 1 and result.shape == (agents,)):
            raise self._wrong(
                f"actions of the shape {list(result.shape)}", f"the shape is [{agents}, {action.factors}]"
            )
        values: FloatArray = result.reshape(agents, action.factors)
        if not np.isfinite(values).all():
            raise self._wrong("NaN or infinity", "actions are finite")
        axes, choices = values[:, : action.continuous_size], values[:, action.continuous_size :]
        self._check_choices(choices, action.discrete_branches, masks)
        continuous = axes if action.continuous_size else None
        return Actions(
            continuous=continuous,
            discrete=choices.astype(np.int32) if action.discrete_branches else None,
            log_prob=np.zeros_like(values),
            environment_continuous=None if continuous is None else continuous.copy(),
        )

    def _check_choices(self, choices: FloatArray, branches: Sequence[int], masks: MaskArray | None) -> None:
        begin = 0
        for branch, size in enumerate(branches):
            mine = choices[:, branch]
            if ((mine != np.rint(mine)) | (mine < 0) | (mine >= size)).any():
                raise self._wrong(
                    f"the choices {mine.tolist()[:_SHOWN]} of branch {branch}",
                    f"choices are whole numbers from 0 to {size - 1}",
                )
            if masks is not None and not masks[np.arange(len(mine)), begin + mine.astype(np.int64)].all():
                raise self._wrong(
                    f"the choices {mine.tolist()[:_SHOWN]} of branch {branch}", "the masks forbid one of them"
                )
            begin += size

    def _called(self, call: Callable[[], Any]) -> Any:
        """Calls the user's code; turns any exception into an error, even `SystemExit`, which would end this process."""
        try:
            return call()
        except BaseException as error:  # signals have handlers and raise nothing
            place = place_of(error)
            where = f" ({place})" if place else ""
            raise ActorError(
                ExitCode.OPPONENT_FAILED,
                f"--opponent {self.name} failed: {one_line(error)}{where}",
                traceback_of(error),
            ) from error

    def _wrong(self, returned: str, expected: str) -> ActorError:
        return ActorError(ExitCode.OPPONENT_FAILED, f"--opponent {self.name} returned {returned}, but {expected}")
