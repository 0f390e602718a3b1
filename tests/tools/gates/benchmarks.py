"""Gates on public tasks: PPO with its defaults and with the settings of rl-zoo, beside published results.

Each seed plays 100 greedy episodes after its whole budget. The gate passes if the median seed of one of its arms reaches
the target and no seed of that arm stays below the floor; the figures of all arms are in the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.tools.gates.gate import OWN, SHIPPED, Arm, Gate
from tests.tools.gates.rules import one_reaches
from tests.tools.gates.zoo import DEFAULTS, ENTRIES, behavior, command_line

EPISODES = 100
DEFAULT = OWN / "defaults.yaml"
"""Has no more than the trainer's name."""


@dataclass(frozen=True, slots=True)
class Task:
    """A public task and what is asked of it.

    Attributes:
        name: Within the names of gates.
        env: What actors are told by ``--env``.
        entry: The task's name in rl-zoo.
        steps: The budget.
        target: Mean return of 100 greedy episodes of the median seed.
        floor: The same of the worst seed.
        reference: A published result and its kind.
        half_range: Half of the distance between the bounds of an action.
        shipped: Name of the run file that users have for the task; empty if there is none.
        own: Name of a run file of the gates; empty if there is none.
        changed: Settings over it.
        env_kwargs: Of the environment.
    """

    name: str
    env: str
    entry: str
    steps: int
    target: float
    floor: float
    reference: str
    half_range: float = 1.0
    shipped: str = ""
    own: str = ""
    changed: tuple[str, ...] = ()
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)


TASKS = (
    Task(
        "cartpole-greedy", "CartPole-v1", "CartPole-v1", 100_000, 490.0, 400.0,
        "rl-zoo 500 +- 0 (one run, greedy)", shipped="cartpole.yaml",
    ),
    Task(
        "pendulum", "Pendulum-v1", "Pendulum-v1", 100_000, -180.0, -250.0,
        "rl-zoo -172 (one run, greedy, gSDE)", half_range=2.0, shipped="pendulum.yaml",
    ),
    Task(
        "mountaincar", "MountainCar-v0", "MountainCar-v0", 1_000_000, -110.0, -130.0,
        "rl-zoo -110 +- 19 (one run, greedy)", own="mountaincar.yaml", changed=("network_settings.normalize=true",),
    ),
    Task(
        "bipedalwalker", "BipedalWalker-v3", "BipedalWalker-v3", 2_000_000, 250.0, 150.0,
        "rl-zoo 288 +- 2 at 5,000,000 (one run, greedy)", shipped="bipedalwalker.yaml",
    ),
    Task(
        "halfcheetah", "HalfCheetah-v5", "HalfCheetah-v4", 1_000_000, 5_000.0, 2_500.0,
        "CleanRL 1,443 as acted; Tianshou 5,784 greedy; rl-zoo 5,819 (v3, one run, greedy)",
        own="mujoco.yaml",
    ),
    Task(
        "doublependulum", "InvertedDoublePendulum-v5", "InvertedDoublePendulum-v2", 1_000_000, 9_000.0, 6_000.0,
        "Tianshou 9,231 greedy", own="mujoco.yaml", changed=("hyperparameters.normalize_advantages=false",),
    ),
    Task(
        "lunarlander", "LunarLander-v3", "LunarLander-v3", 1_000_000, 240.0, 180.0,
        "rl-zoo 242 +- 32 (one run, greedy)", shipped="lunarlander.yaml",
    ),
    Task(
        "lunarlander-continuous", "LunarLander-v3", "LunarLanderContinuous-v3", 1_000_000, 240.0, 180.0,
        "rl-zoo 271 +- 32 (one run, greedy)", shipped="lunarlander.yaml", env_kwargs={"continuous": True},
    ),
    Task(
        "minigrid", "tests.tools.gates.environments.minigrid:empty_random", "MiniGrid-Empty-Random-5x5-v0", 100_000, 0.96, 0.9,
        "rl-zoo 0.968 (one run, greedy)",
    ),
)  # fmt: skip


def _gate(task: Task) -> Gate:
    entry = {**DEFAULTS, **ENTRIES[task.entry]}
    arms = [
        _arm("defaults", task, DEFAULT),
        _arm("zoo", task, DEFAULT, command_line(behavior(entry, task.half_range)), entry["n_envs"]),
    ]
    if task.shipped:
        arms.append(_arm("shipped", task, SHIPPED / task.shipped))
    if task.own:
        arms.append(_arm("own", task, OWN / task.own, task.changed))
    asks = f"greedy {task.target:g} after {task.steps:,} in the median of an arm, none below {task.floor:g}"
    rule = one_reaches([arm.name for arm in arms], task.target, task.floor)
    shown = task.entry if ":" in task.env or task.env_kwargs else task.env
    length: Literal["quick", "long"] = "quick" if task.steps <= 100_000 else "long"
    return Gate(f"{task.name}-ppo", f"{shown}, `ppo`; {task.reference}", asks, tuple(arms), rule, length=length)


def _arm(name: str, task: Task, run_file: Path, settings: tuple[str, ...] = (), environments: int = 8) -> Arm:
    """Returns an arm with one actor and no target."""
    return Arm(
        name,
        run_file,
        task.env,
        task.steps,
        settings=tuple(setting for setting in settings if not setting.startswith(("max_steps", "trainer_type"))),
        actors=1,
        envs=environments,
        greedy_episodes=EPISODES,
        wall_seconds=3600.0,
        env_kwargs=task.env_kwargs,
    )


BENCHMARKS: tuple[Gate, ...] = tuple(_gate(task) for task in TASKS)
"""One gate for each task."""
