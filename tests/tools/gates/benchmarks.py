"""Gates on public tasks: PPO beside published results.

Each seed plays 100 greedy episodes after its whole budget. The gate passes if the median seed of one of its arms reaches
the target and no seed of that arm stays below the floor; the figures of all arms are in the table.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from tests.tools.gates.gate import OWN, SHIPPED, Arm, Gate
from tests.tools.gates.rules import at_least, greedy, one_reaches

EPISODES: Final = 100
_MUJOCO: Final = {"own": OWN / "mujoco.yaml"}
_LANDER: Final = {"shipped": SHIPPED / "lunarlander.yaml"}


def _gate(
    name: str,
    env: str,
    steps: int,
    asked: tuple[float, float],
    published: str,
    *,
    run_files: Mapping[str, Path],
    title: str = "",
    settings: tuple[str, ...] = (),
    env_kwargs: Mapping[str, Any] | None = None,
) -> Gate:
    """Returns the gate of a task.

    Args:
        name: Within the names of gates.
        env: What actors are told by ``--env``.
        steps: The budget.
        asked: Mean returns of 100 greedy episodes: the target of the median seed, and the floor of the worst one.
        published: A published result and its kind.
        run_files: Run file of each arm, by its name.
        title: Of the task; empty for `env`.
        settings: Values over the run file.
        env_kwargs: Of the environment.
    """
    arms = tuple(
        Arm(
            arm, run_file, env, steps, settings=settings, actors=1, greedy_episodes=EPISODES, wall_seconds=3600.0,
            env_kwargs=env_kwargs or {},
        )
        for arm, run_file in run_files.items()
    )  # fmt: skip
    target, floor = asked
    asks = f"greedy {target:g} after {steps:,} in the median of an arm, none below {floor:g}"
    rule = one_reaches(list(run_files), target, floor)
    length: Literal["quick", "long"] = "quick" if steps <= 100_000 else "long"
    return Gate(f"{name}-ppo", f"{title or env}, `ppo`; {published}", asks, arms, rule, length=length)


def _halfcheetah_sac() -> Gate:
    """Returns a gate of an hour and a half, which runs only if it is named."""
    arm = Arm(
        "sac", OWN / "mujoco-sac.yaml", "HalfCheetah-v5", 400_000, actors=1, envs=1, greedy_episodes=EPISODES,
        wall_seconds=20_000.0,
    )  # fmt: skip
    title = "HalfCheetah-v5, `sac`; after 1,000,000 steps: rl-zoo 9,535 +- 100 (v3, one run, greedy), CleanRL 9,635 as acted"
    rule = at_least("sac", 9_000.0, greedy, "greedy", far_off=7_000.0)
    return Gate(
        "halfcheetah-sac", title, "greedy 9,000 after 400,000, one seed", (arm,), rule, seeds=(1,), length="named"
    )


BENCHMARKS: tuple[Gate, ...] = (
    _gate(
        "cartpole-greedy", "CartPole-v1", 100_000, (490.0, 400.0), "rl-zoo 500 +- 0 (one run, greedy)",
        run_files={"zoo": OWN / "cartpole-zoo.yaml", "shipped": SHIPPED / "cartpole.yaml"},
    ),
    _gate(
        "pendulum", "Pendulum-v1", 100_000, (-180.0, -250.0), "rl-zoo -172 (one run, greedy, gSDE)",
        run_files={"shipped": SHIPPED / "pendulum.yaml"},
    ),
    _gate(
        "mountaincar", "MountainCar-v0", 1_000_000, (-110.0, -130.0), "rl-zoo -110 +- 19 (one run, greedy)",
        run_files={"own": OWN / "mountaincar.yaml"}, settings=("network_settings.normalize=true",),
    ),
    _gate(
        "bipedalwalker", "BipedalWalker-v3", 2_000_000, (250.0, 150.0), "rl-zoo 288 +- 2 at 5,000,000 (one run, greedy)",
        run_files={"shipped": SHIPPED / "bipedalwalker.yaml"},
    ),
    _gate(
        "halfcheetah", "HalfCheetah-v5", 1_000_000, (5_000.0, 2_500.0),
        "CleanRL 1,443 as acted; Tianshou 5,784 greedy; rl-zoo 5,819 (v3, one run, greedy)", run_files=_MUJOCO,
    ),
    _gate(
        "doublependulum", "InvertedDoublePendulum-v5", 1_000_000, (9_000.0, 6_000.0), "Tianshou 9,231 greedy",
        run_files=_MUJOCO,
        settings=("hyperparameters.normalize_advantages=false",),
    ),
    _gate("lunarlander", "LunarLander-v3", 1_000_000, (240.0, 180.0), "rl-zoo 242 +- 32 (one run, greedy)", run_files=_LANDER),
    _gate(
        "lunarlander-continuous", "LunarLander-v3", 1_000_000, (240.0, 180.0), "rl-zoo 271 +- 32 (one run, greedy)",
        run_files=_LANDER, title="LunarLanderContinuous-v3", env_kwargs={"continuous": True},
    ),
    _gate(
        "minigrid", "tests.tools.gates.environments.minigrid:empty_random", 100_000, (0.96, 0.9),
        "rl-zoo 0.968 (one run, greedy)", run_files={"zoo": OWN / "minigrid-zoo.yaml"}, title="MiniGrid-Empty-Random-5x5-v0",
    ),
    _halfcheetah_sac(),
)  # fmt: skip
"""One gate for each task."""
