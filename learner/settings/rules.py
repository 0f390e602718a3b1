"""Rules over the whole run file: what is not built, what lock-step forbids, and what is probably a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from learner.settings.base import Path
from learner.settings.hyperparameters import (
    OWN_TRAINERS,
    HyperparameterSettings,
    ReplayHyperparameters,
    built_trainers,
    trainers_with,
)
from learner.settings.options import RunOptions
from learner.settings.parameters import MAX_FLOAT32, ParameterSettings
from learner.settings.problems import Problems, did_you_mean
from learner.settings.trainer import TrainerSettings


def _blocks(options: RunOptions) -> Iterator[tuple[Path, TrainerSettings]]:
    """Yields the settings of every behavior, then the defaults, each with its path."""
    for name, settings in options.behaviors.items():
        yield ("behaviors", name), settings
    if options.default_settings is not None:
        yield ("default_settings",), options.default_settings


def _listed(has: Callable[[type[HyperparameterSettings]], bool]) -> str:
    return ", ".join(sorted(built_trainers(has)))


def unsupported(options: RunOptions) -> list[str]:
    """Returns one line for each feature that is asked for and not built yet; none if the run can start."""
    found = [line for path, settings in _blocks(options) for line in _not_built(".".join(path), settings)]
    for name, parameter in (options.environment_parameters or {}).items():
        found.extend(_not_told(f"environment_parameters.{name}", name, parameter))
    return found


def _not_told(path: str, name: str, parameter: ParameterSettings) -> Iterator[str]:
    """Yields what a player could not be told: ML-Agents fails at the first reset."""
    if not name.isascii():
        yield f"{path}: players read names in ASCII only, rename it there and in the player"
    for lesson in parameter.curriculum:
        for number in lesson.value.sampler_parameters.numbers():
            if abs(number) > MAX_FLOAT32:
                yield f"{path}: {number} in lesson {lesson.name!r} is more than players hold ({MAX_FLOAT32:.4g})"


def _not_built(path: str, settings: TrainerSettings) -> Iterator[str]:
    own = OWN_TRAINERS.get(settings.trainer_type)
    if own is not None and own.trainer is None:
        yield f"{path}.trainer_type: {settings.trainer_type} is not built yet; trainers that are: {_listed(lambda _: True)}"
    if settings.network_settings.memory is not None and not settings.traits.recurrent:
        recurrent = _listed(lambda model: model.traits.recurrent)
        yield (
            f"{path}.network_settings.memory: {settings.trainer_type} has no recurrent networks, remove it; trainers that "
            f"have: {recurrent}"
        )
    if not settings.reward_signals.active():
        yield f"{path}.reward_signals: there is none, so nothing would be learned; add extrinsic: {{}}"
    if settings.self_play is not None:
        yield f"{path}.self_play: not built yet, remove it"
    if settings.behavioral_cloning is not None and not settings.traits.imitates:
        cloning = _listed(lambda model: model.traits.imitates)
        yield (
            f"{path}.behavioral_cloning: {settings.trainer_type} does not imitate yet, remove it; trainers that do: {cloning}"
        )


def conflicts(options: RunOptions) -> Iterator[tuple[Path, str]]:
    """Yields what keeps a run in lock-step from being repeatable: the path of a setting, and what to do about it."""
    if options.rollcast.lockstep is None:
        return
    if options.rollcast.evaluation.interval_steps is not None:
        yield (
            ("rollcast", "evaluation"),
            "an evaluation takes actors out of the rounds: evaluate the checkpoints instead",
        )
    if options.checkpoint_settings.inference:
        yield ("checkpoint_settings", "inference"), "nothing is trained under it, in lock-step or otherwise: remove one"
    for path, settings in _blocks(options):
        yield from _unrepeatable(path, settings)
    if options.rollcast.device_ring_steps is not None:
        yield (
            ("rollcast", "device_ring_steps"),
            "a ring of fixed size may be too small for a round of rollcast.lockstep: remove it, the ring then grows",
        )


def _unrepeatable(path: Path, settings: TrainerSettings) -> Iterator[tuple[Path, str]]:
    if settings.threaded:
        text = "is true, and rollcast.lockstep takes turns: set it to false, or remove rollcast.lockstep"
        yield (*path, "threaded"), text
    if not settings.traits.repeatable:
        known = _listed(lambda model: model.traits.repeatable)
        text = f"{settings.trainer_type} cannot be trained in lock-step, only {known}: take one, or remove rollcast.lockstep"
        yield (*path, "trainer_type"), text


def _cautions(options: RunOptions) -> Iterator[tuple[Path, str]]:
    """Yields what can go together with lock-step, and should be known."""
    if options.rollcast.lockstep is None:
        return
    if options.env_settings.seed < 0:
        yield (
            ("env_settings", "seed"),
            "is not set, so that each new run in lock-step draws another one: set it, or runs will differ",
        )
    for path, settings in _blocks(options):
        hyper = settings.hyperparameters
        if isinstance(hyper, ReplayHyperparameters) and not hyper.save_replay_buffer:
            text = "is false: a run in lock-step that is stopped and resumed repeats itself with its replay memory only; set it"
            yield (*path, "hyperparameters", "save_replay_buffer"), f"{text} to true, unless the run is never stopped"


def explanation(options: RunOptions) -> list[str]:
    """Returns what lock-step makes of a run, for people; nothing where it is off."""
    lockstep = options.rollcast.lockstep
    if lockstep is None:
        return []
    names = "" if lockstep.actor_names is None else f" ({', '.join(lockstep.actor_names)})"
    replay = trainers_with(lambda model: model.traits.replay)
    quota = (
        f"as many steps as pass buffer_size ({replay}: time_horizon)"
        if lockstep.quota_steps is None
        else f"{lockstep.quota_steps} steps"
    )
    lines = (
        f"training waits for {lockstep.actors} actors{names}; in each round every agent takes {quota}",
        f"one update trains all steps of a round ({replay}: it makes all updates that they owe); checkpoint_seconds, max_policy_lag and on_policy have no effect",
        f"every {lockstep.checkpoint_updates} rounds the run is saved and all environments begin anew; a restart goes on there",
        "torch works with deterministic algorithms, and with one thread unless torch_threads says otherwise",
    )
    return [f"lock-step: {line}" for line in lines]


def warn(options: RunOptions, problems: Problems) -> None:
    """Notes what is probably not meant as it was written."""
    for name, settings in options.behaviors.items():
        hyperparameters = settings.hyperparameters
        if hyperparameters.batch_size > hyperparameters.buffer_size:
            text = f"is {hyperparameters.batch_size}, more than buffer_size {hyperparameters.buffer_size}"
            problems.warn(("behaviors", name, "hyperparameters", "batch_size"), text)
        _warn_of_no_update(("behaviors", name, "max_steps"), settings, options, problems)
    if options.default_settings is not None and not options.behaviors:
        _warn_of_no_update(("default_settings", "max_steps"), options.default_settings, options, problems)
    for place, text in _cautions(options):
        problems.warn(place, text)
    for name, parameter in (options.environment_parameters or {}).items():
        _warn_of_lessons(name, parameter, options, problems)


def _warn_of_no_update(
    place: tuple[str, ...], settings: TrainerSettings, options: RunOptions, problems: Problems
) -> None:
    """Warns of a training that ends before its first update."""
    buffer_size = settings.hyperparameters.buffer_size
    lockstep = options.rollcast.lockstep
    if lockstep is not None and lockstep.quota_steps is not None:
        return
    if "buffer_size" in settings.traits.first_update and settings.max_steps <= buffer_size:
        text = f"is {settings.max_steps}, and the first update takes more than buffer_size {buffer_size}: nothing would be trained"
        problems.warn(place, f"{text}; raise it, or lower buffer_size")


def _warn_of_lessons(name: str, parameter: ParameterSettings, options: RunOptions, problems: Problems) -> None:
    is_closed = bool(options.behaviors) and options.default_settings is None
    for index, lesson in enumerate(parameter.curriculum[:-1]):
        behavior = lesson.completion_criteria.behavior if lesson.completion_criteria is not None else None
        if behavior is not None and is_closed and behavior not in options.behaviors:
            near = did_you_mean(behavior, options.behaviors) or f"; it lists {', '.join(sorted(options.behaviors))}"
            text = f"lesson {lesson.name!r} never ends: the run file lists no behavior {behavior!r}{near}"
            path = ("environment_parameters", name, "curriculum", str(index), "completion_criteria", "behavior")
            problems.warn(path, text)
    last = parameter.curriculum[-1]
    if last.completion_criteria is not None:
        text = f"the last lesson, {last.name!r}, has completion_criteria; they are ignored"
        problems.warn(("environment_parameters", name), text)
