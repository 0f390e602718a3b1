"""Acts from Python: `rollcast.load_policy` and `rollcast.evaluate` run exported models, without torch and without a learner."""

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast import hub
from rollcast.descriptions import MODEL_PROPERTY, RECURRENT_IN, RECURRENT_OUT
from rollcast.extras import install
from rollcast.files import read_regular
from rollcast.limits import MAX_POLICY_BYTES

from actor_client.demos.policies import Chosen
from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import one_line
from actor_client.envs.factory import make_env_batch
from actor_client.envs.seeds import environment_seeds
from actor_client.exits import ActorError, ExitCode
from actor_client.policy.graph import open_session

_FORMAT: Final = 1
_SUFFIX: Final = ".onnx"
_BEST: Final = "best"
_INTERVAL: Final = 1.959963984540054
"""Standard errors on each side of a 95 % interval."""


class HybridAction(NamedTuple):
    """An action with axes and choices.

    Attributes:
        continuous: Values of the axes, float32 ``[n]`` or ``[B, n]``.
        discrete: Choices, int64 ``[b]`` or ``[B, b]``.
    """

    continuous: NDArray[np.float32]
    discrete: NDArray[np.int64]


class LoadedPolicy:
    """A trained policy, which acts in observations and actions of its environment. `load_policy` makes it.

    A policy with memory remembers the observations since `reset`, of each agent of the batch.

    Args:
        path: An exported model.

    Raises:
        ActorError: The file is not one.

    Attributes:
        path: As given.
        behavior: Name of the behavior.
        run_id: Name of the run that trained it.
        step: Environment steps that it was trained on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._session = self._opened()
        card = self._card()
        try:
            self.behavior, self.run_id, self.step = str(card["behavior"]), str(card["run_id"]), int(card["step"])
            self._observations = [_Observation(each) for each in card["observations"]]
            self._continuous, self._discrete = card["continuous"], card["discrete"]
            self._masks = card["masks"]
            self._memory_size = card["memory"]["size"] if card["memory"] else 0
            self._scale = self._continuous["scale"] if self._continuous else []
            self._offset = self._continuous["offset"] if self._continuous else []
            self._first = np.asarray(self._discrete["first"] if self._discrete else 0, np.int64)
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed(
                f"its description cannot be read ({one_line(error)}): export the run's policy again"
            ) from error
        self._memory: NDArray[np.float32] | None = None

    def act(self, observation: Any, *, masks: Any = None, deterministic: bool = True) -> Any:
        """Returns the action for an observation, or the actions for a batch of them.

        Args:
            observation: What the environment returned: an array, or a dictionary or tuple of arrays for such a space. With one
                axis more, a batch of B agents.
            masks: Allowed choices, ``[sum of branches]`` or ``[B, sum of branches]``, nonzero = allowed; None = all.
            deterministic: Whether to take the most likely action instead of a drawn one.

        Returns:
            What the environment takes: an int for one branch of choices, an array ``[b]`` for several, an array float32 ``[n]``
            for axes, a `HybridAction` for both; with a batch axis in front for a batch.

        Raises:
            ActorError: The observation does not fit, or the model fails.
        """
        inputs, is_batch = self._inputs_of(observation)
        continuous, discrete = self._run(inputs, masks, deterministic=deterministic)
        if discrete is not None:
            discrete = discrete + self._first
        parts: list[Any] = [
            values if is_batch else values[0] for values in (continuous, discrete) if values is not None
        ]
        if len(parts) > 1:
            return HybridAction(*parts)
        if discrete is not None and len(self._discrete["branches"]) == 1:
            return parts[0][:, 0] if is_batch else int(parts[0][0])
        return parts[0]

    def act_on(self, observations: Mapping[str, NDArray[Any]], masks: Any, *, deterministic: bool) -> Chosen:
        """Returns the actions of E agents in Rollcast's own form.

        Args:
            observations: Arrays ``[E, *shape]`` by name, as `EnvBatch` has them.
            masks: uint8 ``[E, sum of branches]``; None = all allowed.
            deterministic: Whether to take the most likely actions.

        Raises:
            ActorError: The policy is for other observations, or the model fails.
        """
        found = {name: values.shape[1:] for name, values in observations.items()}
        if any(found.get(each.name) != each.shape for each in self._observations):
            needed = {each.name: each.shape for each in self._observations}
            raise self._failed(
                f"it takes {_listed(needed)}, and the environment has {_listed(found)}: it is for another environment"
            )
        inputs = [np.asarray(observations[each.name], np.float32) / each.divisor for each in self._observations]
        continuous, discrete = self._run(inputs, masks, deterministic=deterministic)
        return Chosen(continuous, None if discrete is None else discrete.astype(np.int32))

    def _run(
        self, inputs: Sequence[NDArray[np.float32]], masks: Any, *, deterministic: bool
    ) -> tuple[NDArray[np.float32] | None, NDArray[np.int64] | None]:
        """Returns values of the axes in the environment, ``[B, n]``, and choices counted from 0, ``[B, b]``."""
        agents = len(inputs[0])
        feed: dict[str, NDArray[Any]] = {
            each.input: array for each, array in zip(self._observations, inputs, strict=True)
        }
        if self._masks:
            shape = agents, self._masks["size"]
            given = np.ones(shape) if masks is None else np.asarray(masks) != 0
            if given.size != math.prod(shape):
                raise self._failed(f"the masks have {given.size} entries; {agents} x {shape[1]} are expected")
            feed[self._masks["input"]] = given.reshape(shape).astype(np.float32)
        if self._memory_size:
            if self._memory is None or len(self._memory) != agents:
                self._memory = np.zeros((agents, 1, self._memory_size), np.float32)
            feed[RECURRENT_IN] = self._memory
        kind = "most_likely" if deterministic else "sample"
        names = [each[kind] for each in (self._continuous, self._discrete) if each]
        try:
            found = self._session.run([*names, *([RECURRENT_OUT] if self._memory_size else ())], feed)
        except Exception as error:  # ONNX Runtime's errors have no common base class
            raise self._failed(f"the model cannot act: {one_line(error)}") from error
        if self._memory_size:
            self._memory = found.pop()
        if not all(np.isfinite(values).all() for values in found):
            raise self._failed("its actions are not finite: the observation is not, or the training has diverged")
        continuous = _in_environment(found.pop(0), self._scale, self._offset) if self._continuous else None
        return continuous, found.pop(0).astype(np.int64) if self._discrete else None

    def reset(self, agents: Any = None) -> None:
        """Forgets what a policy with memory remembers.

        Args:
            agents: The agents of the batch that begin a new episode: indices, or a mask; None for all.
        """
        if agents is None:
            self._memory = None
        elif self._memory is not None:
            self._memory[agents] = 0.0

    def __repr__(self) -> str:
        return f"LoadedPolicy({str(self.path)!r}, behavior={self.behavior!r}, step={self.step})"

    def _inputs_of(self, observation: Any) -> tuple[list[NDArray[np.float32]], bool]:
        """Returns the observations as the model takes them, ``[B, *shape]`` each, and whether they are a batch."""
        values = [each.of(observation) for each in self._observations]
        forms = set.intersection(
            *(each.forms_of(value) for each, value in zip(self._observations, values, strict=True))
        )
        if not forms:
            shapes = _listed({each.name: each.shape for each in self._observations})
            found = ", ".join(str(list(value.shape)) for value in values)
            raise self._failed(f"the observation has the shape {found}; the policy takes {shapes}, or a batch of them")
        return [
            each.input_of(value) for each, value in zip(self._observations, values, strict=True)
        ], False not in forms

    def _opened(self) -> Any:
        try:
            return open_session(read_regular(self.path, MAX_POLICY_BYTES))
        except OSError as error:
            raise self._failed(f"the file cannot be read: {error.strerror or error}", ExitCode.USAGE) from None
        except Exception as error:
            raise self._failed(f"the file is not a model that can be run: {one_line(error)}") from error

    def _card(self) -> dict[str, Any]:
        text = self._session.get_modelmeta().custom_metadata_map.get(MODEL_PROPERTY, "")
        try:
            card: dict[str, Any] = json.loads(text)
            known = card["format"] == _FORMAT and card["observations"] is not None
        except (KeyError, RecursionError, TypeError, ValueError):
            known = False
        if not known:
            raise self._failed("the file does not describe itself as a model that a run exported does")
        return card

    def _failed(self, reason: str, code: ExitCode = ExitCode.POLICY_FAILED) -> ActorError:
        return ActorError(code, f"{self.path}: {reason}")


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


class _Observation:
    """An input of a model; see `learner/training/export/README.md` for its description."""

    def __init__(self, card: Mapping[str, Any]) -> None:
        self.input, self.name = str(card["input"]), str(card["name"])
        self.shape = tuple(map(int, card["shape"]))
        self._path = tuple(card["path"])
        self._first = np.asarray(card["first"], np.float32)
        self.divisor = np.float32(card["divisor"])

    def of(self, observation: Any) -> NDArray[Any]:
        """Returns its part of what the environment returned."""
        for key in self._path if isinstance(observation, Mapping | tuple) else ():
            observation = observation[key]
        return np.asarray(observation)

    def forms_of(self, value: NDArray[Any]) -> set[bool]:
        """Returns what a value may be: True for a batch, False for one observation, which may have more axes than the input."""
        size = math.prod(self.shape)
        if value.shape == self.shape and size > 1:
            return {False}
        if value.shape[1:] == self.shape:
            return {True}
        forms = {False} if value.size == size else set[bool]()
        if value.ndim and value.shape[0] * size == value.size:
            forms.add(True)
        return forms

    def input_of(self, value: NDArray[Any]) -> NDArray[np.float32]:
        """Returns what the model takes, ``[B, *shape]``."""
        rows = value.reshape(-1, *self.shape).astype(np.float32)
        return np.asarray((rows - self._first) / self.divisor, np.float32)


def _in_environment(
    outputs: NDArray[Any], scale: Sequence[float | None], offset: Sequence[float]
) -> NDArray[np.float32]:
    """Returns outputs of a model, ``[B, n]``, as values of the environment; without a scale they are those of a tanh."""
    axes = [
        np.arctanh(outputs[:, axis]) if each is None else outputs[:, axis] * each + offset[axis]
        for axis, each in enumerate(scale)
    ]
    return np.stack(axes, axis=1).astype(np.float32)


def load_policy(
    source: str | Path, *, behavior: str | None = None, checkpoint: int | str | None = None
) -> LoadedPolicy:
    """Loads a policy that a run has exported; ONNX Runtime runs it.

        policy = rollcast.load_policy("results/cartpole")
        action = policy.act(observation)

    Args:
        source: A run folder, an exported model, or ``hf://user/name`` for a run that ``rollcast push`` shared.
        behavior: Name of the behavior; None for the only one.
        checkpoint: A step of which the run has kept a checkpoint, or ``best``; None for the newest.

    Raises:
        ActorError: There is no such model, or it cannot be used.
    """
    if str(source).startswith(hub.SCHEME):
        return _of_hub(str(source).removeprefix(hub.SCHEME), behavior, checkpoint)
    source = Path(source)
    return LoadedPolicy(source if source.is_file() else _model_in(source, behavior, checkpoint))


def _of_hub(repository: str, behavior: str | None, checkpoint: int | str | None) -> LoadedPolicy:
    """Loads a shared policy; its file is needed only meanwhile."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        try:
            hub.pull(repository, folder, hub.MODELS)
        except hub.HubError as error:
            raise ActorError(ExitCode.UNREACHABLE if error.status == 0 else ExitCode.USAGE, str(error)) from None
        except ModuleNotFoundError as error:
            message = f"{hub.SCHEME} needs the module {error.name!r}; {install('hub')}"
            raise ActorError(ExitCode.MISSING_EXTRA, message) from None
        return LoadedPolicy(_model_in(folder, behavior, checkpoint))


def _model_in(folder: Path, behavior: str | None, checkpoint: int | str | None) -> Path:
    """Returns the file of a model in a run folder: of a run that trains, that of its newest checkpoint."""
    models: dict[str, dict[int, Path]] = {path.stem: {-1: path} for path in sorted(folder.glob(f"*{_SUFFIX}"))}
    for path in folder.glob(f"*/*{_SUFFIX}"):
        name, _, step = path.stem.rpartition("-")
        if name == path.parent.name and step.isdecimal():
            models.setdefault(name, {})[int(step)] = path
    wanted = behavior if behavior is not None else next(iter(models), None)
    if wanted is None or wanted not in models or (behavior is None and len(models) > 1):
        found = f"it has those of {', '.join(sorted(models))}: name a behavior" if models else "it has none"
        which = f" of {behavior}" if behavior else ""
        raise ActorError(ExitCode.USAGE, f"{folder} is not a run with a model{which}; {found}")
    kept = models[wanted]
    if checkpoint is None:
        return kept[max(kept)]
    path = folder / wanted / f"{_BEST}{_SUFFIX}"
    if checkpoint == _BEST and path.is_file():
        return path
    if checkpoint in kept and checkpoint != -1:
        return kept[int(checkpoint)]
    steps = ", ".join(str(step) for step in sorted(kept) if step >= 0) or "none"
    raise ActorError(
        ExitCode.USAGE,
        f"{folder} has no model of checkpoint {checkpoint!r} of {wanted}; it has those of the steps {steps}",
    )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Whole episodes of a policy.

    Attributes:
        returns: Return of each episode, float64 ``[episodes]``.
        lengths: Length of each episode in steps, int64 ``[episodes]``.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(self.returns.std())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean return, by the normal approximation."""
        half = _INTERVAL * self.std / math.sqrt(len(self.returns))
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        low, high = self.interval
        return f"mean return {self.mean:.2f} [{low:.2f}, {high:.2f}] over {len(self.returns)} episodes"


def evaluate(
    policy: LoadedPolicy,
    env: str | Callable[..., Any],
    episodes: int = 100,
    *,
    num_envs: int = 8,
    seed: int = 0,
    deterministic: bool = True,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Plays whole episodes of an environment of Gymnasium in this process.

    Each of the environments plays a fixed share of the episodes: if those that end first played more, short episodes
    would count more.

    Args:
        policy: The policy; its memory is reset.
        env: A Gymnasium id, ``package:id``, ``module:callable``, or a callable that returns an environment.
        episodes: Number of episodes.
        num_envs: Environments that are stepped together.
        seed: Seed of the environments.
        deterministic: Whether the policy takes its most likely actions.
        env_kwargs: Arguments of the environment.

    Raises:
        ActorError: The environment cannot be made or fails, or the policy is of another one.
    """
    if min(episodes, num_envs) < 1:
        raise ActorError(
            ExitCode.USAGE, f"episodes is {episodes} and num_envs {num_envs}; at least 1 of each is needed"
        )
    batch = make_env_batch(env, num_envs=min(num_envs, episodes), env_kwargs=env_kwargs)
    try:
        return _played(policy, batch, episodes, seed, deterministic=deterministic)
    finally:
        batch.close()


def _played(policy: LoadedPolicy, batch: EnvBatch, episodes: int, seed: int, *, deterministic: bool) -> Evaluation:
    names = [each.name for each in batch.spec.observations]
    least, more = divmod(episodes, batch.num_envs)
    left = np.array([least + (env < more) for env in range(batch.num_envs)])
    returns, lengths = np.zeros(batch.num_envs), np.zeros(batch.num_envs, np.int64)
    found: list[tuple[float, int]] = []
    policy.reset()
    observations = batch.reset(environment_seeds(seed, 0, batch.num_envs))
    while left.any():
        chosen = policy.act_on(
            dict(zip(names, observations, strict=True)), batch.action_masks, deterministic=deterministic
        )
        result = batch.step(chosen.continuous, chosen.discrete)
        observations = result.observations
        played = np.ones(batch.num_envs, np.bool_) if result.ignored is None else ~result.ignored
        returns += np.where(played, result.rewards, 0.0)
        lengths += played
        for env in result.ended:
            if left[env]:
                found.append((float(returns[env]), int(lengths[env])))
                left[env] -= 1
            returns[env], lengths[env] = 0.0, 0
        policy.reset(list(result.ended))
    return Evaluation(np.array([each for each, _ in found]), np.array([each for _, each in found], np.int64))
