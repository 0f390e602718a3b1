"""Compares Rollcast with ML-Agents' own trainer: the same scripted player, run file, steps and seeds.

Both gates run only if they are named, for they need ML-Agents: `.venv-mlagents` in the root of the repository, which
is made if it is missing (`tests.tools.bench.environments`).
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import yaml

from tests.ports import reserve_ports
from tests.tools.bench.environments import ML_AGENTS
from tests.tools.bench.measurement import MeasurementFailed, Unavailable
from tests.tools.bench.processes import Child
from tests.tools.gates.duel import ARENAS, GAMES, score, self_play, unity_model
from tests.tools.gates.gate import Arm, Gate, Results, Rule, Trained, Verdict
from tests.tools.gates.plate import AGENTS, TARGET, poca, read_scores
from tests.tools.gates.rules import no_later_than
from tests.tools.gates.training import START_SECONDS, behavior_of
from tests.tools.players.build import make_build

STOCK = "mlagents"
"""Name of the arm of ML-Agents."""
STEPS = 200_000
"""Steps of each training of sumo: half of the gate's, since ML-Agents takes a quarter of an hour for them."""
WALL_SECONDS = 7_200.0
"""ML-Agents made 130 to 400 steps of its trainer per second on a busy machine."""
_LEARN = """\
import functools
import torch
# Since 2.9 torch exports in another way by default, for which ML-Agents lacks a package.
torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
from mlagents.trainers.learn import main
main()
"""


def train_stock_groups(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains groups of the plate with `mlagents-learn`; returns are the scores of groups, as the player counts them.

    Args:
        arm: What.
        seed: Of the run.
        kept: Beginning of the path of the trainer's output, which is kept.

    Raises:
        MeasurementFailed: ML-Agents is not there, or the run failed.
    """
    with tempfile.TemporaryDirectory(prefix="plate-") as name:
        scores = Path(name) / "scores.jsonl"
        _learn(arm, seed, kept, Path(name), ("--task", "plate", "--agents", str(AGENTS), "--episodes", str(scores)))
        return read_scores(seed, scores)


def train_stock_duel(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains sumo with `mlagents-learn`, and lets the final model play those of Rollcast's arm.

    Args:
        arm: What.
        seed: Of the run.
        kept: Gets the final model and the trainer's output, each with a suffix. Rollcast's models are next to it.

    Raises:
        MeasurementFailed: ML-Agents is not there, the run failed, or Rollcast's arm left no model.
    """
    others = sorted(kept.parent.glob(f"{kept.name.rpartition(f'-{STOCK}-')[0]}-ppo-*.onnx"))
    if not others:
        raise MeasurementFailed(f"there is no model of Rollcast's arm next to {kept}")
    with tempfile.TemporaryDirectory(prefix="duel-") as name:
        episodes = Path(name) / "episodes.jsonl"
        folder = _learn(
            arm, seed, kept, Path(name), ("--task", "duel", "--agents", str(ARENAS), "--episodes", str(episodes))
        )
        shutil.copy(folder / f"{behavior_of(arm.run_file)}.onnx", kept.with_suffix(".onnx"))
        trained = read_scores(seed, episodes)
    own = unity_model(kept.with_suffix(".onnx"))
    against = tuple(round(score(own, unity_model(other)), 4) for other in others)
    return replace(trained, train=None, best=None, curve=(), against=against)  # the returns of both teams add up to 0


def _learn(arm: Arm, seed: int, kept: Path, folder: Path, player: Sequence[str]) -> Path:
    """Trains with the run file of an arm, to its budget, and returns the folder of the run."""
    try:
        ML_AGENTS.ensure(kept.with_name(f"{kept.name}-install.log"))
    except Unavailable as error:
        raise MeasurementFailed(str(error)) from None
    document = yaml.safe_load(arm.run_file.read_text(encoding="utf-8"))
    document["behaviors"][behavior_of(arm.run_file)]["max_steps"] = arm.budget_steps
    run_file = folder / "run.yaml"
    run_file.write_text(yaml.safe_dump(document), encoding="utf-8")
    build = make_build(folder / "build", *player)
    command: list[str | Path] = [ML_AGENTS.python, "-c", _LEARN, run_file, "--env", build, "--seed", str(seed)]
    command += ["--run-id", "run", "--results-dir", folder, "--base-port", str(reserve_ports()), "--timeout-wait", "60"]
    command += ["--torch-device", "cpu"]
    with Child("mlagents-learn", command, kept.with_name(f"{kept.name}.log")) as run:
        run.wait_for_success(START_SECONDS + arm.wall_seconds)
    return folder / "run"


def wins_no_more(arm: str, others: str) -> Rule:
    """Requires that the median run of an arm wins at most half of its games against the runs of another arm.

    Args:
        arm: Whose.
        others: The arm that it played, for the text.
    """

    def rule(results: Results) -> Verdict:
        shares = [mean(run.against) for run in results[arm]]
        parts = [f"seed {run.seed}: {' / '.join(f'{share:.1%}' for share in run.against)}" for run in results[arm]]
        text = f"{arm} wins {median(shares):.1%} of its games against {others} in the median ({'; '.join(parts)})"
        return Verdict(median(shares) <= 0.5, text)

    return rule


def stock_poca() -> Gate:
    """Returns the comparison on the plate."""
    arm = replace(poca().arms[0], wall_seconds=WALL_SECONDS)
    return Gate(
        "poca-mlagents",
        "The plate: groups of 3, `poca` of Rollcast and of ML-Agents 1.1.0",
        f"a score of {TARGET:g} in no more steps than ML-Agents, median seed",
        (arm, replace(arm, name=STOCK, trained_by=train_stock_groups)),
        no_later_than("poca", STOCK),
        length="named",
    )


def stock_self_play() -> Gate:
    """Returns the comparison on sumo."""
    arm = replace(self_play().arms[0], budget_steps=STEPS, wall_seconds=WALL_SECONDS)
    return Gate(
        "self-play-mlagents",
        "Sumo of two teams, `ppo` + self-play of Rollcast and of ML-Agents 1.1.0",
        f"after {STEPS:,} steps, ML-Agents' final policies win at most half of {GAMES} games against each of Rollcast's, "
        "median seed (*reached* by Rollcast: against its own snapshots)",
        (arm, replace(arm, name=STOCK, trained_by=train_stock_duel)),
        wins_no_more(STOCK, "Rollcast"),
        length="named",
    )
