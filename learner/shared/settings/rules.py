"""Rules over the whole run file: missing features, settings that lock-step forbids, and probable mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec

from rollcast.extras import install

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import Path
from learner.shared.settings.extensions import BODIES, COMPANIONS, ENCODERS, POLICIES, REWARD_SIGNALS, TRAINERS
from learner.shared.settings.hyperparameters import (
    OWN_TRAINERS,
    ActorCriticHyperparameters,
    HyperparameterSettings,
    ReplayHyperparameters,
    built_trainers,
    trainers_with,
)
from learner.shared.settings.network import VISUAL_ENCODERS
from learner.shared.settings.options import RunOptions
from learner.shared.settings.parameters import MAX_FLOAT32, ParameterSettings
from learner.shared.settings.problems import Problems, did_you_mean
from learner.shared.settings.rewards import LearnedSignalSettings, RewardSignals
from learner.shared.settings.service import OWN_STATS_WRITERS, LockstepSettings
from learner.shared.settings.trainer import TrainerSettings

_TRACKERS = ("wandb", "mlflow")
"""Built-in writers whose packages are extras, by the names of the modules."""
SEATS = 2
"""Seats of a game that is rated."""


def blocks(options: RunOptions) -> Iterator[tuple[Path, TrainerSettings]]:
    """Yields the settings of every behavior, then the defaults, each with its path."""
    for name, settings in options.behaviors.items():
        yield ("behaviors", name), settings
    if options.default_settings is not None:
        yield ("default_settings",), options.default_settings


def _listed(has: Callable[[type[HyperparameterSettings]], bool]) -> str:
    return ", ".join(sorted(built_trainers(has)))


def unsupported(options: RunOptions) -> list[str]:
    """Returns one line for each requested feature that is not built yet; empty if the run can start."""
    found = [line for path, settings in blocks(options) for line in _not_built(".".join(path), settings)]
    for name, parameter in (options.environment_parameters or {}).items():
        found.extend(_not_told(f"environment_parameters.{name}", name, parameter))
    if options.rollcast.trainers > 1 and not options.checkpoint_settings.inference:
        found.extend(
            f"{'.'.join(path)}.trainer_type: {settings.trainer_type} trains in one process; set rollcast.trainers to 1, or use one "
            f"of: {_listed(lambda model: not model.traits.replay)}"
            for path, settings in blocks(options)
            if settings.traits.replay
        )
        found.extend(
            f"{'.'.join(path)}.companions: companions train in one process; set rollcast.trainers to 1, or take them out"
            for path, settings in blocks(options)
            if settings.companions.active()
        )
    return found


def _not_told(path: str, name: str, parameter: ParameterSettings) -> Iterator[str]:
    """Yields values that cannot be sent to a player: ML-Agents fails on them at the first reset."""
    if not name.isascii():
        yield f"{path}: players read only ASCII names; rename the parameter here and in the player"
    for lesson in parameter.curriculum:
        for number in lesson.value.sampler_parameters.numbers():
            if abs(number) > MAX_FLOAT32:
                yield f"{path}: {number} in lesson {lesson.name!r} exceeds the largest number that players can hold ({MAX_FLOAT32:.4g})"


def _not_built(path: str, settings: TrainerSettings) -> Iterator[str]:
    if settings.network_settings.memory is not None and not settings.traits.recurrent:
        recurrent = _listed(lambda model: model.traits.recurrent)
        yield (
            f"{path}.network_settings.memory: {settings.trainer_type} does not support recurrent networks; remove it, or "
            f"use one of: {recurrent}"
        )
    if not settings.reward_signals.active():
        yield f"{path}.reward_signals: is empty, so nothing would be learned; add extrinsic: {{}}"
    if settings.self_play is not None and not settings.traits.plays:
        players = _listed(lambda model: model.traits.plays)
        yield f"{path}.self_play: {settings.trainer_type} does not support self-play; remove it, or use one of: {players}"
    if settings.behavioral_cloning is not None and not settings.traits.imitates:
        cloning = _listed(lambda model: model.traits.imitates)
        yield (
            f"{path}.behavioral_cloning: {settings.trainer_type} does not support imitation; remove it, or use one of: "
            f"{cloning}"
        )


def small_rings(options: RunOptions) -> Iterator[str]:
    """Yields one line for each behavior that needs more than a ring of fixed size, even with the smallest chunks."""
    ring_steps = options.rollcast.device_ring_steps
    for path, settings in blocks(options) if ring_steps is not None else ():
        needed_steps = 2 * settings.hyperparameters.buffer_size + settings.time_horizon + 1
        if not settings.traits.replay and ring_steps is not None and ring_steps < needed_steps:
            yield (
                f"rollcast.device_ring_steps is {ring_steps}, but {'.'.join(path)} needs at least {needed_steps} "
                "(2 * buffer_size + time_horizon + a chunk): raise it, or lower buffer_size or time_horizon"
            )


def endless_lessons(options: RunOptions) -> Iterator[str]:
    """Yields one line for each lesson that never ends: its behavior cannot join the run, or nothing is evaluated."""
    if options.rollcast.evaluation.interval_steps is None:
        for name, parameter in (options.environment_parameters or {}).items():
            for index, lesson in enumerate(parameter.curriculum[:-1]):
                if lesson.completion_criteria is not None and lesson.completion_criteria.measure == "evaluation":
                    yield (
                        f"environment_parameters.{name}.curriculum.{index}.completion_criteria.measure: lesson "
                        f"{lesson.name!r} never ends: nothing is evaluated; set rollcast.evaluation.interval_steps"
                    )
    if not options.behaviors or options.default_settings is not None:
        return
    for name, parameter in (options.environment_parameters or {}).items():
        for index, lesson in enumerate(parameter.curriculum[:-1]):
            behavior = lesson.completion_criteria.behavior if lesson.completion_criteria is not None else None
            if behavior is not None and behavior not in options.behaviors:
                near = did_you_mean(behavior, options.behaviors) or f"; it lists {', '.join(sorted(options.behaviors))}"
                yield (
                    f"environment_parameters.{name}.curriculum.{index}.completion_criteria.behavior: lesson "
                    f"{lesson.name!r} never ends: the run file lists no behavior {behavior!r}{near}"
                )


def opponents_without_games(options: RunOptions) -> Iterator[str]:
    """Yields one line for each reason why evaluations cannot be played against `rollcast.evaluation.opponents`."""
    evaluation = options.rollcast.evaluation
    if not evaluation.opponents:
        return
    setting = "rollcast.evaluation.opponents"
    all_blocks = list(blocks(options))
    if len(all_blocks) != 1 or all_blocks[0][1].self_play is None:
        yield f"{setting} needs a run with one behavior, which has self_play: add self_play, or remove the opponents"
    if evaluation.interval_steps is None:
        yield f"{setting} has no effect, because nothing is evaluated: set rollcast.evaluation.interval_steps"
    if evaluation.episodes < SEATS:
        yield f"rollcast.evaluation.episodes is {evaluation.episodes}, but half of the games are in each seat: use 2 or more"
    for text in evaluation.opponents:
        if text.startswith("actor:"):
            yield (
                f"{setting}: {text!r} is a script, which only plays in training and in tournaments; name random, MODEL.onnx "
                "or RUN@STEP"
            )


def code_of_users(options: RunOptions) -> Iterator[tuple[Path, str, str, str]]:
    """Yields path, dotted path, name and entry point group of each setting that names code of the user, or of a package.

    Writers and callbacks come last; acting does not need them.
    """
    for path, settings in blocks(options):
        if settings.trainer_type not in OWN_TRAINERS:
            yield _named((*path, "trainer_type"), settings.trainer_type, TRAINERS)
        yield from (_named((*path, "companions", name), name, COMPANIONS) for name in settings.companions.active())
        networks = {(*path, "network_settings"): settings.network_settings}
        for name, signal in settings.reward_signals.active().items():
            if name not in RewardSignals.model_fields:
                yield _named((*path, "reward_signals", name), name, REWARD_SIGNALS)
            if isinstance(signal, LearnedSignalSettings):
                networks[*path, "reward_signals", name, "network_settings"] = signal.network_settings
        for place, network in networks.items():
            if network.vis_encode_type not in VISUAL_ENCODERS:
                yield _named((*place, "vis_encode_type"), network.vis_encode_type, ENCODERS)
            if network.body is not None:
                yield _named((*place, "body"), network.body, BODIES)
            if network.policy is not None:
                yield _named((*place, "policy"), network.policy, POLICIES)
    if options.checkpoint_settings.inference:
        return
    service = options.rollcast
    for key, names in {"stats_writers": service.stats_writers, "callbacks": service.callbacks}.items():
        own = {*OWN_STATS_WRITERS} - {*_TRACKERS} if key == "stats_writers" else ()
        place = ("rollcast", key)  # their groups of entry points have the same names
        yield from (_named(place, name, ".".join(place)) for name in dict.fromkeys(names) if name not in own)


def _named(path: Path, name: str, group: str) -> tuple[Path, str, str, str]:
    return path, ".".join(path), name, group


def missing_code(options: RunOptions, places: Mapping[str, str]) -> Iterator[UserError]:
    """Imports all `code_of_users`, and yields an error for each that is missing.

    Args:
        options: The run file and the command line.
        places: Where it is named, for messages, by dotted paths.
    """
    for _, setting, name, group in code_of_users(options):
        own = OWN_STATS_WRITERS if group == "rollcast.stats_writers" else ()
        try:
            plugins.find(places.get(setting, setting), name, group, dict.fromkeys(own, print))
        except UserError as error:
            yield error
        if own and name in _TRACKERS and find_spec(name) is None:
            yield UserError(
                ExitCode.MISSING_EXTRA,
                f"rollcast.stats_writers names {name}, but the module {name!r} is not installed; {install(name)}",
            )


def sources_of_code(options: RunOptions) -> list[dict[str, str]]:
    """Returns setting, name, file and SHA-256 of each module that the settings name as ``module:callable``, once imported."""
    found = code_of_users(options)
    return [{"setting": setting, **plugins.source(name)} for _, setting, name, _ in found if ":" in name]


def conflicts(options: RunOptions) -> Iterator[tuple[Path, str]]:
    """Yields the settings that keep a lock-step run from being reproducible: the path of each, and a remedy."""
    if options.rollcast.lockstep is None:
        return
    if options.rollcast.evaluation.interval_steps is not None:
        yield (
            ("rollcast", "evaluation"),
            "is not possible with rollcast.lockstep, whose rounds need all actors: evaluate the checkpoints instead",
        )
    if options.checkpoint_settings.inference:
        yield (
            ("checkpoint_settings", "inference"),
            "trains nothing, so rollcast.lockstep has no effect: remove one of them",
        )
    for path, settings in blocks(options):
        yield from _unrepeatable(path, settings)
    lockstep, most = options.rollcast.lockstep, options.rollcast.max_sessions
    if lockstep.actors > most:
        text = f"is {lockstep.actors}, more than rollcast.max_sessions {most}: no round could begin; raise max_sessions, or lower actors"
        yield ("rollcast", "lockstep", "actors"), text
    if options.rollcast.device_ring_steps is not None:
        yield (
            ("rollcast", "device_ring_steps"),
            "may be too small for a round of rollcast.lockstep: remove it, so that the ring grows as needed",
        )


def _unrepeatable(path: Path, settings: TrainerSettings) -> Iterator[tuple[Path, str]]:
    if settings.threaded:
        text = (
            "is true, but in lock-step collection and updates take turns: set it to false, or remove rollcast.lockstep"
        )
        yield (*path, "threaded"), text
    if settings.self_play is not None:
        text = "assigns opponents to actors as they play, not by rounds: remove it, or remove rollcast.lockstep"
        yield (*path, "self_play"), text
    if not settings.traits.repeatable:
        known = _listed(lambda model: model.traits.repeatable)
        text = f"{settings.trainer_type} cannot train in lock-step: use one of {known}, or remove rollcast.lockstep"
        yield (*path, "trainer_type"), text


def _cautions(options: RunOptions) -> Iterator[tuple[Path, str]]:
    """Yields settings that are compatible with lock-step but have effects worth knowing."""
    if options.rollcast.lockstep is None:
        return
    if options.env_settings.seed < 0:
        yield (
            ("env_settings", "seed"),
            "is not set, so each new run draws another seed: set it to make lock-step runs equal",
        )
    for path, settings in blocks(options):
        hyper = settings.hyperparameters
        if isinstance(hyper, ReplayHyperparameters) and not hyper.save_replay_buffer:
            text = "is false, but a resumed run is reproducible only with its replay memory; set it"
            yield (*path, "hyperparameters", "save_replay_buffer"), f"{text} to true, unless the run is never stopped"
        yield from _idle_companions(path, settings, options.rollcast.lockstep)


def _idle_companions(path: Path, settings: TrainerSettings, lockstep: LockstepSettings) -> Iterator[tuple[Path, str]]:
    """Yields companions that never train, because their data buffer is emptied before."""
    if lockstep.quota_steps is not None or settings.traits.replay:
        return
    steps = lockstep.checkpoint_updates * settings.hyperparameters.buffer_size
    for name, companion in settings.companions.active().items():
        if companion.min_buffer_size > steps:
            text = (
                f"is {companion.min_buffer_size}, but lock-step empties data buffers every {lockstep.checkpoint_updates} updates, "
                f"about {steps} steps, so it never trains: lower it, or raise rollcast.lockstep.checkpoint_updates"
            )
            yield (*path, "companions", name, "min_buffer_size"), text


def explanation(options: RunOptions) -> list[str]:
    """Returns the effects of lock-step on a run, for people; empty if it is off."""
    lockstep = options.rollcast.lockstep
    if lockstep is None:
        return []
    names = "" if lockstep.actor_names is None else f" ({', '.join(lockstep.actor_names)})"
    replay = trainers_with(lambda model: model.traits.replay)
    quota = (
        f"just enough steps to reach buffer_size ({replay}: time_horizon)"
        if lockstep.quota_steps is None
        else f"{lockstep.quota_steps} steps"
    )
    lines = (
        f"training waits for {lockstep.actors} actors{names}; in each round every agent takes {quota}",
        f"one update trains on all steps of a round ({replay}: as many updates as these steps require); checkpoint_seconds, max_policy_lag and on_policy have no effect",
        f"every {lockstep.checkpoint_updates} rounds the run is saved and all environments are reset; a restart continues from there",
        "torch uses deterministic algorithms, and one thread unless torch_threads is set",
    )
    return [f"lock-step: {line}" for line in lines]


def warn(options: RunOptions, problems: Problems) -> None:
    """Records settings that are probably mistakes."""
    for name, settings in options.behaviors.items():
        hyperparameters = settings.hyperparameters
        if hyperparameters.batch_size > hyperparameters.buffer_size:
            text = f"is {hyperparameters.batch_size}, more than buffer_size {hyperparameters.buffer_size}: lower it, or raise buffer_size"
            problems.warn(("behaviors", name, "hyperparameters", "batch_size"), text)
        if isinstance(hyperparameters, ActorCriticHyperparameters):
            warmup = hyperparameters.learning_rate_warmup
            if warmup >= settings.max_steps:
                text = f"is {warmup}, not below max_steps {settings.max_steps}: the learning rate never reaches its value; lower it"
                problems.warn(("behaviors", name, "hyperparameters", "learning_rate_warmup"), text)
        if settings.time_horizon > max(settings.max_steps, hyperparameters.buffer_size):
            text = f"is {settings.time_horizon}, more than max_steps {settings.max_steps}: steps of longer episodes arrive after the end; lower it"
            problems.warn(("behaviors", name, "time_horizon"), text)
        _warn_of_no_update(("behaviors", name, "max_steps"), settings, options, problems)
    if options.default_settings is not None and not options.behaviors:
        _warn_of_no_update(("default_settings", "max_steps"), options.default_settings, options, problems)
    for place, text in _cautions(options):
        problems.warn(place, text)
    for name, parameter in (options.environment_parameters or {}).items():
        _warn_of_lessons(name, parameter, problems)


def _warn_of_no_update(
    place: tuple[str, ...], settings: TrainerSettings, options: RunOptions, problems: Problems
) -> None:
    """Warns of a training that ends before its first update."""
    buffer_size = settings.hyperparameters.buffer_size
    lockstep = options.rollcast.lockstep
    if lockstep is not None and lockstep.quota_steps is not None:
        return
    if "buffer_size" in settings.traits.first_update and settings.max_steps <= buffer_size:
        text = f"is {settings.max_steps}, which is not above buffer_size {buffer_size}: nothing would be trained"
        problems.warn(place, f"{text}; raise max_steps, or lower buffer_size")


def _warn_of_lessons(name: str, parameter: ParameterSettings, problems: Problems) -> None:
    last = parameter.curriculum[-1]
    if last.completion_criteria is not None:
        text = f"the last lesson, {last.name!r}, has completion_criteria; they are ignored"
        problems.warn(("environment_parameters", name), text)
