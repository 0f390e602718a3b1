"""Prepares ``train``: chooses the settings for an environment, and the arguments of its actors."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.hyperparameters import DEFAULT_TRAINER
from learner.shared.settings.load import LoadedRun, load_run_options
from learner.shared.settings.service import ServiceSettings
from learner.start.actors import (
    DESCRIBED,
    Failure,
    TrainingRequest,
    actor_program,
    require_actors,
    start_actor,
)
from learner.start.init import example_path, example_texts

_SETTINGS: Final = (
    *(
        "run_id",
        "results_dir",
        "resume",
        "checkpoint",
        "force",
        "initialize_from",
        "seed",
        "torch_device",
        "deterministic",
        "address",
        "insecure",
    ),
    *("certs", "http_address", "target_return", "max_wall_seconds", "log_format", "log_level"),
)
"""Flags that are settings of the learner."""
ENVIRONMENT: Final = (
    *("num_envs", "env_kwargs", "frame_stack", "frame_skip", "max_episode_steps", "step_timeout", "max_env_failures"),
    *("video", "video_every", "behavior"),
)
"""Flags with a value that the actors have, too."""
_ENV: Final = re.compile(r"^#.* gym --env (\S+)", re.MULTILINE)
_TRAINER: Final = re.compile(r"^ +trainer_type: (\S+)", re.MULTILINE)
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class _Choice(NamedTuple):
    """The settings of a run.

    Attributes:
        path: The run file; None for the defaults of a trainer.
        items: Further settings, as of ``--set``.
        run_id: Name of the run, if the settings have none.
        text: What was chosen, as a line for the user; empty for the user's own run file.
    """

    path: Path | None
    items: tuple[str, ...] = ()
    run_id: str | None = None
    text: str = ""


def prepare(parsed: argparse.Namespace) -> tuple[LoadedRun, TrainingRequest]:
    """Returns the settings of the learner, and the arguments of the actors.

    Raises:
        UserError: A setting is invalid, or the environment cannot be used; then with the actor's error and its code.
    """
    kind = "godot" if parsed.godot else "gym"
    require_actors(f"--env {parsed.env}", kind, "start the learner with serve, and actors elsewhere")
    if parsed.run_file is not None and parsed.trainer is not None:
        raise UserError(
            ExitCode.USAGE,
            f"--trainer {parsed.trainer} chooses settings, and {parsed.run_file} has them: give only one",
        )
    flags = tuple(_environment_flags(parsed))
    if parsed.run_file is not None:
        choice = _Choice(parsed.run_file)
    elif parsed.godot:
        choice = _defaults(parsed.env, parsed.trainer or DEFAULT_TRAINER)
    else:
        choice = _choose(parsed.env, parsed.trainer, flags, parsed.stepped_by_caller)
    loaded = _load(parsed, choice)
    if loaded.options.checkpoint_settings.inference:
        raise UserError(
            ExitCode.USAGE, "inference: true in the run file acts without training: leave it out, or use evaluate --env"
        )
    service = loaded.options.rollcast
    request = TrainingRequest(
        env=parsed.env,
        actors=0 if parsed.stepped_by_caller else parsed.actors,
        arguments=(
            *flags,
            *(() if parsed.actor_certs is None else ("--certs", parsed.actor_certs)),
            *parsed.actor_args,
        ),
        service=service,
        may_move=parsed.address is None and service.address == ServiceSettings().address,
        flags=shlex.join(("--env", parsed.env, *flags)),
        chosen=choice.text,
        kind=kind,
    )
    return loaded, request


def _environment_flags(parsed: argparse.Namespace) -> Iterator[str]:
    """Yields the flags of the environment as those of an actor."""
    for name in ENVIRONMENT:
        if (value := getattr(parsed, name)) is not None:
            yield f"--{name.replace('_', '-')}={value}"
    for name in parsed.wrap or ():
        yield f"--wrap={name}"
    if parsed.vector:
        yield "--vector"


def _load(parsed: argparse.Namespace, choice: _Choice) -> LoadedRun:
    given = {name: value for name in _SETTINGS if (value := getattr(parsed, name)) is not None}
    if parsed.video is not None:
        given["rollcast.video"] = parsed.video
    if choice.run_id is not None:
        given.setdefault("run_id", choice.run_id)
    items = [*choice.items, *parsed.set_items]
    return load_run_options(choice.path, cli=given, set_items=items, environ=dict(os.environ))


def _choose(env: str, trainer: str | None, flags: tuple[str, ...], kind: str | None) -> _Choice:
    """Chooses the settings for an environment: an example, the defaults of its kind of actions, or those of a trainer.

    Args:
        env: The environment.
        trainer: The trainer that the user chose.
        flags: Flags of an actor that makes it.
        kind: Its kind of actions, `continuous` or `discrete`; None to look.

    Raises:
        UserError: The environment cannot be made, or the actor cannot be run.
    """
    for name, text in example_texts().items():
        found, used = _ENV.search(text), _TRAINER.search(text)
        if found is not None and found[1] == env and used is not None and trainer in {None, used[1]}:
            return _Choice(example_path(name), text=f"{used[1]}, of the example {name}; {_writes(name)}")
    name = kind or _kind_of_actions(env, flags)
    if trainer not in {None, DEFAULT_TRAINER}:
        return _defaults(env, trainer)
    return _Choice(
        example_path(name), run_id=_run_id(env), text=f"{DEFAULT_TRAINER}, for {name} actions; {_writes(name)}"
    )


def _defaults(env: str, trainer: str | None) -> _Choice:
    """Returns the defaults of a trainer, for any behaviors."""
    text = f"the defaults of {trainer}; rollcast check-config shows all values of a run file"
    return _Choice(None, (f"default_settings.trainer_type={trainer}",), _run_id(env), text)


def _run_id(env: str) -> str:
    """Returns a name for a run with an environment."""
    return _NOT_IN_IDS.sub("-", re.split(r"[:/]", env)[-1]).strip("-.") or "train"


def _writes(name: str) -> str:
    return f"rollcast init {name} writes them to {name}.yaml, to change them"


def _kind_of_actions(env: str, flags: tuple[str, ...]) -> str:
    """Returns whether the actions of an environment are `continuous` or `discrete`, by an actor that makes it and ends.

    Raises:
        UserError: The actor failed; with its error and its exit code.
    """
    command = actor_program("gym", "--env", env, *flags, "--describe", "--log-format", "json", "--log-level", "warning")
    with start_actor(command, subprocess.PIPE) as process:
        lines = [] if process.stdout is None else process.stdout.read().decode(errors="replace").splitlines()
    described: list[object] = []
    failure = Failure()
    for line in lines:
        if line.startswith(DESCRIBED):
            described.append(json.loads(line.removeprefix(DESCRIBED))["continuous_actions"])
        else:
            failure.take(line)
    if process.returncode == 0 and described:
        return "continuous" if described[-1] else "discrete"
    raise failure.error("the actor that looks at the environment", process.returncode)
