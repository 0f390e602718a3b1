"""Runs one training with learner and actor processes over gRPC."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import torch
import yaml

from learner.shared.exits import UserError
from learner.shared.observe.curves import RETURN_KEY, read_curves
from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.bench.processes import REPOSITORY, Child
from tests.tools.bench.rollcast_run import read_json, serving, wait
from tests.tools.gates.gate import Arm, Gate, Trained
from tests.tools.gates.greedy import make, play

START_SECONDS = 180.0
"""A cold start reads torch from a slow disk."""
END_SECONDS = 60.0
CURVE_EPISODES = 20
"""Least number of episodes behind a point of a curve."""
FIRST_GREEDY_SEED = 10_000
"""Seeds of the deterministic episodes count from here: the same starts for every run, and none that it trained on."""


def behavior_of(run_file: Path) -> str:
    """Returns the name of a run file's only behavior."""
    (name,) = yaml.safe_load(run_file.read_text(encoding="utf-8"))["behaviors"]
    return str(name)


def learner_command(arm: Arm, seed: int, demonstrations: Path | None = None) -> list[str]:
    """Returns the command line of the learner but for its run folder and address.

    Args:
        arm: What is trained.
        seed: Of the run.
        demonstrations: The file that takes the place of ``{demo}`` in the arm's settings.
    """
    options = ["--seed", str(seed), "--log-format", "json", "--max-wall-seconds", str(arm.wall_seconds)]
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
    serve = ["rollcast", "serve", str(arm.run_file.relative_to(REPOSITORY)), "--run-id", run_id]
    yield shlex.join([*serve, "--seed", str(seed), *_what_to_learn(arm, file)])
    environment = _environment(arm) if arm.env_kwargs else ["--env", arm.env]
    actor = ["rollcast", "act", arm.actor, *environment]
    yield shlex.join([*actor, "--num-envs", str(arm.envs), *arm.actor_options]) + (
        f"  # {arm.actors} times" if arm.actors > 1 else ""
    )
    if arm.recorded_episodes:
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
    logs = folder.parent / "logs"
    command = learner_command(arm, seed, demonstrations)
    log = logs / f"{folder.name}-learner.log"
    with ExitStack() as children:
        learner, address = children.enter_context(serving(command, folder, log, start_seconds=START_SECONDS))
        actors = [
            children.enter_context(
                Child(f"actor {number}", _actor_command(arm, address, number), logs / f"{folder.name}-{number}.log")
            )
            for number in range(arm.actors)
        ]
        wait(learner, actors, START_SECONDS + arm.wall_seconds + END_SECONDS)
    return collect(arm, seed, folder)


def collect(arm: Arm, seed: int, folder: Path) -> Trained:
    """Reads what a finished run left behind, and plays its policy if the arm asks for that.

    Raises:
        MeasurementFailed: No actor took a step, or there is no model to play.
    """
    summary = read_json(folder / "summary.json")
    if not summary.get("env_steps_taken"):
        raise MeasurementFailed(f"no actor took a step; the logs next to {folder} say why")
    behavior = str(summary["behavior"])
    progress = read_json(folder / "progress.json")["behaviors"].get(behavior, {})
    scores: list[float] = []
    if arm.greedy_episodes:
        starts = range(FIRST_GREEDY_SEED, FIRST_GREEDY_SEED + arm.greedy_episodes)
        scores = play(folder / f"{behavior}.onnx", make(arm.env, arm.env_kwargs), starts)
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
    """Returns the curve that `rollcast compare` draws."""
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
    behavior = behavior_of(arm.run_file)
    file = folder / f"{behavior}.demo"
    command = [sys.executable, "-m", "actor_client", "gym", *_environment(arm)]
    command += _recording(arm, seed, file, str(folder / f"{behavior}.onnx"))
    with Child("the recorder", command, folder.parent / "logs" / f"{folder.name}-record.log") as recorder:
        recorder.wait_for_success(START_SECONDS)
    return file


def _recording(arm: Arm, seed: int, file: Path, policy: str) -> list[str]:
    options = ["--record", str(file), "--policy", policy, "--record-episodes", str(arm.recorded_episodes)]
    return [*options, "--behavior", behavior_of(arm.run_file), "--seed", str(seed)]


def _environment(arm: Arm) -> list[str]:
    return ["--env", arm.env, "--env-kwargs", json.dumps(dict(arm.env_kwargs))]


def _actor_command(arm: Arm, address: str, number: int) -> list[str]:
    what = [*_environment(arm), "--num-envs", str(arm.envs)]
    if arm.actor == "boards":
        what = ["--game", arm.env, "--num-envs", str(arm.envs)]
    command = [sys.executable, "-m", "actor_client", arm.actor, *what, *arm.actor_options]
    return [*command, "--learner", address, "--name", f"gate-{number}", "--metrics-address", "off"]


def _optimizer_steps(checkpoint: Path) -> int | None:
    if not checkpoint.exists():
        return None
    state = torch.load(checkpoint, weights_only=True).get("state", {})
    return int(state["optimizer_steps"]) if "optimizer_steps" in state else None
