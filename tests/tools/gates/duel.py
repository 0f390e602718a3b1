"""The gate of self-play: the last policy of a run against the untrained one and all its snapshots."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
from rollcast.enums import ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.policy.noise import Noise
from actor_client.policy.runner import Policy
from learner.shared.policies import StoredPolicy
from learner.shared.runfolder.snapshots import SnapshotFiles
from tests.ports import reserve_ports
from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.bench.processes import Child
from tests.tools.gates.gate import OWN, Arm, Gate, Results, Rule, Trained, Verdict
from tests.tools.gates.training import START_SECONDS, behavior_of, collect
from tests.tools.players.build import make_build
from tests.tools.players.duel import Mat

Play = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Returns actions ``[N, 2]`` for observations ``[N, 8]``."""
GAMES = 400
ARENAS = 16
_SPEC = BehaviorSpec(
    "Duel",
    (ObservationSpec("Mat", np.dtype(np.float32), (8,), ObservationKind.VECTOR),),
    ActionSpec(continuous_size=2),
)


def unity_model(path: Path) -> Play:
    """Returns the play of a model as Unity loads it, with draws from its distribution."""
    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def act(observations: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(
            session.run(["continuous_actions"], {"obs_0": observations.astype(np.float32)})[0], np.float64
        )

    return act


def snapshot(stored: StoredPolicy, seed: int = 0) -> Play:
    """Returns the play of a snapshot, as an actor loads it."""
    policy = Policy.load(stored.description, stored.payload, _SPEC)
    noise = Noise(seed, 0, agents=GAMES // 2, continuous_size=2)

    def act(observations: NDArray[np.float64]) -> NDArray[np.float64]:
        actions = policy.act([observations.astype(np.float32)], None, noise)
        return np.asarray(actions.environment_continuous, np.float64)

    return act


def score(first: Play, second: Play, games: int = GAMES, seed: int = 7) -> float:
    """Returns the share of games that the first player wins, with a draw as half; it plays both seats equally often."""
    total = 0.0
    for seat in (0, 1):
        mat = Mat(games // 2)
        mat.reset(seed + seat)
        left = set(range(mat.games))
        while left:
            players = (first, second) if seat == 0 else (second, first)
            for game, won in mat.step([play(mat.observe(team)) for team, play in enumerate(players)]).items():
                if game in left:
                    total += (1.0 + (won if seat == 0 else -won)) / 2.0
                    left.remove(game)
                mat.begin(game)
    return total / (2 * (games // 2))


def train_duel(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains with a scripted player, and lets the final model play all snapshots of the run, oldest first.

    Args:
        arm: What.
        seed: Of the run.
        kept: Gets the final model, with the suffix ``.onnx``.

    Raises:
        MeasurementFailed: The run failed.
    """
    behavior = behavior_of(arm.run_file)
    with tempfile.TemporaryDirectory(prefix="duel-") as name:
        folder = Path(name) / "run"
        build = make_build(Path(name) / "build", "--task", "duel", "--agents", str(ARENAS))
        command = [sys.executable, "-m", "actor_client.unity.dropin"]
        command += [str(arm.run_file), "--env", str(build), "--seed", str(seed), "--base-port", str(reserve_ports())]
        command += ["--run-id", folder.name, "--results-dir", name, "--address", "127.0.0.1:0"]
        command += ["--set", f"behaviors.{behavior}.max_steps={arm.budget_steps}"]
        with Child("the run", command, Path(name) / "run.log") as run:
            run.wait_for_success(START_SECONDS + arm.wall_seconds)
        files = SnapshotFiles(folder)
        keys = sorted(files.keys(behavior), key=lambda key: (key.generation, key.version))
        found = [files.read(behavior, key) for key in keys]
        if not found or None in found:
            raise MeasurementFailed(f"{len(found)} snapshots were found, and not all of them are whole")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / f"{behavior}.onnx", kept.with_suffix(".onnx"))
        final = unity_model(kept.with_suffix(".onnx"))
        against = tuple(round(score(final, snapshot(each)), 3) for each in found if each is not None)
        trained = replace(collect(replace(arm, trained_by=None), seed, folder), against=against)
        shutil.rmtree(folder)
    return trained


def beats_its_past(arm: str, *, untrained: float, first_half: float, worst: float) -> Rule:
    """Requires that every seed's last policy beats the untrained one, the first half of its snapshots, and each one.

    Args:
        arm: Whose.
        untrained: Least share of the games against the untrained policy.
        first_half: Least share over all snapshots of the first half together.
        worst: Least share against any of them.
    """

    def rule(results: Results) -> Verdict:
        passed, parts = True, []
        for run in results[arm]:
            early = run.against[: (len(run.against) + 1) // 2]
            passed &= early[0] >= untrained and mean(early) >= first_half and min(early) >= worst
            parts.append(
                f"seed {run.seed}: untrained {early[0]:.0%}, first half {mean(early):.0%}, worst of it {min(early):.0%}, "
                f"median of all {median(run.against):.0%}"
            )
        asked = f"asked for {untrained:.0%}, {first_half:.0%} and {worst:.0%}"
        return Verdict(passed, f"{asked}; {'; '.join(parts)}")

    return rule


def self_play() -> Gate:
    """Returns the gate."""
    arm = Arm("ppo", OWN / "duel.yaml", "duel", 400_000, trained_by=train_duel)
    asks = "final policy wins 90 % against the untrained one, 70 % against the first half of its snapshots, 55 % against each"
    rule = beats_its_past("ppo", untrained=0.9, first_half=0.7, worst=0.55)
    return Gate("self-play", "Sumo of two teams, `ppo` + self-play", asks, (arm,), rule)
