"""Runs one training with learner and actor processes over gRPC."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import yaml

from learner.common.exits import UserError
from learner.observe.curves import RETURN_KEY, read_curves
from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.bench.processes import REPOSITORY, Child
from tests.tools.gates.gate import Arm, Gate, Trained
from tests.tools.gates.greedy import play

START_SECONDS = 180.0
"""A cold start reads torch from a slow disk."""
END_SECONDS = 60.0
_POLL_SECONDS = 0.1
CURVE_EPISODES = 20
"""Least number of episodes behind a point of a curve."""
FIRST_GREEDY_SEED = 10_000
"""Seeds of the deterministic episodes count from here: the same starts for every run, and none that it trained on."""


def behavior_of(run_file: Path) -> str:
    """Returns the name of a run file's only behavior."""
    (name,) = yaml.safe_load(run_file.read_text(encoding="utf-8"))["behaviors"]
    return str(name)


def learner_command(arm: Arm, seed: int, folder: Path, demonstrations: Path | None = None) -> list[str]:
    """Returns the command line of the learner.

    Args:
        arm: What is trained.
        seed: Of the run.
        folder: Of the run; it need not exist.
        demonstrations: The file that takes the place of ``{demo}`` in the arm's settings.
    """
    options = ["--run-id", folder.name, "--results-dir", str(folder.parent), "--seed", str(seed)]
    options += ["--address", "127.0.0.1:0", "--log-format", "json", "--max-wall-seconds", str(arm.wall_seconds)]
    return [sys.executable, "-m", "learner", "serve", str(arm.run_file), *options, *_what_to_learn(arm, demonstrations)]


def _what_to_learn(arm: Arm, demonstrations: Path | None) -> list[str]:
    behavior = behavior_of(arm.run_file)
    options = ["--set", "rollcast.target_return=null"] if arm.target is None else ["--target-return", str(arm.target)]
    for setting in (f"max_steps={arm.budget_steps}", *arm.settings):
        key, _, value = setting.partition("=")
        options += ["--set", f"behaviors.{behavior}.{key}={value.replace('{demo}', str(demonstrations))}"]
    return [*options, *arm.options]


def commands(gate: Gate, seed: int) -> dict[str, list[str]]:
    """Returns the commands of each arm as a user types them in the repository, each in a terminal of its own."""
    return {arm.name: list(_commands(gate, arm, seed)) for arm in gate.arms}


def _commands(gate: Gate, arm: Arm, seed: int) -> Iterator[str]:
    if arm.trained_by is not None:
        yield f"make gates GATES={gate.name}"
        return
    run_id = f"{gate.name}-{arm.name}-{seed}"
    file = Path(f"{gate.name}-{arm.demonstrations}-{seed}.demo")
    serve = ["rollcast-learner", "serve", str(arm.run_file.relative_to(REPOSITORY)), "--run-id", run_id]
    yield shlex.join([*serve, "--seed", str(seed), *_what_to_learn(arm, file)])
    environment = _environment(arm) if arm.env_kwargs else ["--env", arm.env]
    actor = ["rollcast-actor", arm.actor, *environment]
    yield shlex.join([*actor, "--num-envs", str(arm.envs), *arm.actor_options]) + (
        f"  # {arm.actors} times" if arm.actors > 1 else ""
    )
    if arm.record is not None:
        policy = f"results/{run_id}/{behavior_of(arm.run_file)}.onnx"
        yield shlex.join([*actor, *_recording(arm, seed, Path(f"{run_id}.demo"), policy)])


def train(arm: Arm, seed: int, folder: Path, demonstrations: Path | None = None) -> Trained:
    """Trains once.

    Args:
        arm: What.
        seed: Of the run.
        folder: Of the run; what is there goes.
        demonstrations: Recorded by another arm, for one that asks for them.

    Raises:
        MeasurementFailed: A process could not be started, failed, or hung.
    """
    shutil.rmtree(folder, ignore_errors=True)
    logs = folder.parent / "logs"
    with ExitStack() as children:
        command = learner_command(arm, seed, folder, demonstrations)
        learner = children.enter_context(Child("the learner", command, logs / f"{folder.name}-learner.log"))
        learner.wait_until((folder / "address.json").exists, "it listened", START_SECONDS)
        address = str(_read(folder / "address.json")["address"])
        actors = [
            children.enter_context(
                Child(f"actor {number}", _actor_command(arm, address, number), logs / f"{folder.name}-{number}.log")
            )
            for number in range(arm.actors)
        ]
        _wait(learner, actors, START_SECONDS + arm.wall_seconds + END_SECONDS)
        for actor in actors:
            actor.wait_for_success(END_SECONDS)
    return collect(arm, seed, folder)


def _wait(learner: Child, actors: Sequence[Child], timeout_seconds: float) -> None:
    """Waits for the learner's end; an actor that fails is an error immediately."""
    deadline = time.monotonic() + timeout_seconds
    while learner.is_running():
        if time.monotonic() > deadline:
            raise learner.failed(f"did not end within {timeout_seconds:.0f} s")
        for actor in actors:
            if not actor.is_running() and learner.is_running():
                actor.wait_for_success(0.0)
        time.sleep(_POLL_SECONDS)
    learner.wait_for_success(0.0)


def collect(arm: Arm, seed: int, folder: Path) -> Trained:
    """Reads what a finished run left behind, and plays its policy if the arm asks for that.

    Raises:
        MeasurementFailed: No actor took a step, or there is no model to play.
    """
    summary = _read(folder / "summary.json")
    if not summary.get("env_steps_taken"):
        raise MeasurementFailed(f"no actor took a step; the logs next to {folder} say why")
    behavior = str(summary["behavior"])
    progress = _read(folder / "progress.json")["behaviors"].get(behavior, {})
    scores: list[float] = []
    if arm.greedy_episodes:
        starts = range(FIRST_GREEDY_SEED, FIRST_GREEDY_SEED + arm.greedy_episodes)
        scores = play(folder / f"{behavior}.onnx", arm.env, arm.env_kwargs, starts)
    return Trained(
        seed=seed,
        stop_reason=str(summary["stop_reason"]),
        steps=int(summary["env_steps_taken"]),
        seconds=float(summary["wall_seconds"]),
        episodes=int(summary["episodes"]),
        train=summary["mean_return_100"],
        best=progress.get("best_return"),
        steps_to_target=summary["env_steps_to_target"],
        seconds_to_target=summary["seconds_to_target"],
        optimizer_steps=_optimizer_steps(folder / behavior / "checkpoint.pt"),
        greedy=tuple(scores),
        curve=_curve(folder, behavior) if summary["episodes"] else (),
    )


def _curve(folder: Path, behavior: str) -> tuple[tuple[int, float], ...]:
    """Returns the curve that `rollcast-learner compare` draws."""
    try:
        curves = read_curves(folder, RETURN_KEY, CURVE_EPISODES)
    except UserError as error:
        raise MeasurementFailed(str(error)) from error
    (curve,) = (curve for curve in curves if curve.behavior == behavior)
    return tuple((step, round(value, 3)) for step, value in zip(curve.steps, curve.values, strict=True))


def record(arm: Arm, seed: int, folder: Path) -> Path:
    """Records demonstrations of a trained policy and returns their file.

    Raises:
        MeasurementFailed: The command failed.
    """
    if arm.record is None:
        raise ValueError(f"arm {arm.name} leaves no demonstrations")
    behavior = behavior_of(arm.run_file)
    file = folder / f"{behavior}.demo"
    command = [sys.executable, "-m", "actor_client", "gym", *_environment(arm)]
    command += _recording(arm, seed, file, str(folder / f"{behavior}.onnx"))
    with Child("the recorder", command, folder.parent / "logs" / f"{folder.name}-record.log") as recorder:
        recorder.wait_for_success(START_SECONDS)
    return file


def _recording(arm: Arm, seed: int, file: Path, policy: str) -> list[str]:
    episodes = str(arm.record.episodes if arm.record is not None else 0)
    options = ["--record", str(file), "--policy", policy, "--record-episodes", episodes]
    return [*options, "--behavior", behavior_of(arm.run_file), "--seed", str(seed)]


def _environment(arm: Arm) -> list[str]:
    return ["--env", arm.env, "--env-kwargs", json.dumps(dict(arm.env_kwargs))]


def _actor_command(arm: Arm, address: str, number: int) -> list[str]:
    what = [*_environment(arm), "--num-envs", str(arm.envs)]
    if arm.actor == "boards":
        what = ["--game", arm.env, "--num-games", str(arm.envs)]
    command = [sys.executable, "-m", "actor_client", arm.actor, *what, *arm.actor_options]
    return [*command, "--learner", address, "--name", f"gate-{number}", "--metrics-address", "off"]


def _optimizer_steps(checkpoint: Path) -> int | None:
    if not checkpoint.exists():
        return None
    state = torch.load(checkpoint, weights_only=True).get("state", {})
    return int(state["optimizer_steps"]) if "optimizer_steps" in state else None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MeasurementFailed(f"the run left no {path}: {error}") from error
    return document
