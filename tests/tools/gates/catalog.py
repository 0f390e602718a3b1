"""Lists all gates."""

import yaml

from tests.tools.gates.benchmarks import BENCHMARKS
from tests.tools.gates.boards import shogi
from tests.tools.gates.connect_four import connect_four
from tests.tools.gates.duel import self_play
from tests.tools.gates.gate import EXAMPLES, OWN, SHIPPED, Arm, Gate
from tests.tools.gates.imitation import IMITATION
from tests.tools.gates.lag import train_appo, train_control
from tests.tools.gates.plate import group_rewards, poca
from tests.tools.gates.rules import (
    all_of,
    as_soon_as,
    at_least,
    better_by,
    greedy,
    last_train,
    misses,
    reaches,
    sooner_than,
    stays_below,
    updates_per_step,
)
from tests.tools.gates.stock import stock_poca, stock_self_play

ENVIRONMENTS = "tests.tools.gates.environments"
CATCH = EXAMPLES / "pixels" / "catch.yaml", "deploy.examples.pixels.catch:Catch"
"""Run file and environment."""


def _solved(name: str, title: str, arm: Arm, *, far_off: float, seeds: tuple[int, ...] = (1, 2, 3)) -> Gate:
    """Returns a gate that requires the target of its only arm within its budget."""
    target = arm.target if arm.target is not None else 0.0
    asks = f"{target:g} train in {arm.budget_steps:,}"
    return Gate(name, title, asks, (arm,), reaches(arm.name, target, arm.budget_steps, far_off=far_off), seeds)


def _cartpole(trainer: str, run_file: str, target: float, budget_steps: int, far_off: float) -> Gate:
    arm = Arm(trainer, SHIPPED / run_file, "CartPole-v1", budget_steps, target)
    return _solved(f"cartpole-{trainer}", f"CartPole-v1, `{trainer}`", arm, far_off=far_off)


def _cartpole_ranks() -> Gate:
    """Returns a gate whose arms divide the same updates among one, two and three trainer processes."""
    target, budget = 475.0, 95_000
    arms = [
        Arm(name, SHIPPED / "cartpole.yaml", "CartPole-v1", budget, target, options=("--trainers", str(ranks)))
        for ranks, name in ((1, "one"), (2, "two"), (3, "three"))
    ]
    one, two, three = (arm.name for arm in arms)
    reached = [reaches(arm.name, target, budget, far_off=400.0) for arm in arms]
    rule = all_of(*reached, as_soon_as(two, one), as_soon_as(three, one))
    asks = f"{target:g} train in {budget:,} each; two and three in the median within the range of one's seeds"
    return Gate(
        "cartpole-ranks", "CartPole-v1, `ppo` in one, two and three trainer processes", asks, tuple(arms), rule,
        seeds=(1, 2, 3, 4, 5),
    )  # fmt: skip


def _lag() -> Gate:
    """Returns a gate whose arms act with the policy of eight versions ago and differ in the correction."""
    run_file, env, target = OWN / "cartpole-lag.yaml", "CartPole-v1", 475.0
    appo = Arm("appo", run_file, env, 200_000, target, trained_by=train_appo)
    control = Arm("recomputed", run_file, env, 300_000, target, ("trainer_type=ppo",), trained_by=train_control)
    rule = all_of(
        reaches("appo", target, appo.budget_steps, far_off=target, needed=5),
        misses("recomputed", target, control.budget_steps),
    )
    asks = (
        "`appo` 475 train in 200,000, 5 of 5; `ppo` with recomputed old log-probabilities not in 300,000 in the median"
    )
    return Gate("lag", "CartPole-v1, policy lag of 8 versions", asks, (appo, control), rule, seeds=(1, 2, 3, 4, 5))


def _pendulum_sac() -> Gate:
    arm = Arm(
        "sac", SHIPPED / "pendulum-sac.yaml", "Pendulum-v1", 20_000, actors=1, envs=1, greedy_episodes=20,
    )  # fmt: skip
    hyper = yaml.safe_load(arm.run_file.read_text(encoding="utf-8"))["behaviors"]["Pendulum"]["hyperparameters"]
    rule = all_of(
        at_least("sac", -180.0, greedy, "greedy", far_off=-250.0),
        updates_per_step("sac", 1.0 / hyper["steps_per_update"], initial_steps=hyper["buffer_init_steps"]),
    )
    asks = "greedy -180 over 20 fixed starts after 20,000; 1 update per step within 5 %"
    return Gate("pendulum-sac", "Pendulum-v1, `sac`", asks, (arm,), rule)


def _memory() -> Gate:
    env = "deploy.examples.memory.masked_cartpole:make"
    lstm = Arm("lstm", SHIPPED / "cartpole-memory.yaml", env, 1_000_000, 400.0)
    control = Arm("without", OWN / "cartpole-masked.yaml", env, 1_000_000)
    rule = all_of(reaches("lstm", 400.0, 1_000_000, far_off=250.0), stays_below("without", 150.0))
    asks = "400 train in 1,000,000; without memory under 150"
    return Gate("memory", "CartPole without velocities, `ppo` + LSTM", asks, (lstm, control), rule)


def _catch() -> Gate:
    arm = Arm("simple", *CATCH, 100_000, 0.9)
    return _solved("catch", "Catch, 84x84 pixels, `simple`", arm, far_off=0.6)


def _catch_nature() -> Gate:
    setting = ("network_settings.vis_encode_type=nature_cnn",)
    arm = Arm("nature_cnn", *CATCH, 100_000, 0.9, setting)
    return _solved("catch-nature", "Catch, 84x84 pixels, `nature_cnn`", arm, far_off=0.6, seeds=(1,))


def _sorting() -> Gate:
    env = f"{ENVIRONMENTS}.sorting:Sorting"
    run_file, budget = OWN / "sorting.yaml", 100_000
    arms = (
        Arm("attention", run_file, env, budget),
        Arm("control", run_file, env, budget, env_kwargs={"attention": False}),
    )
    asks = f"20 % above the control without attention after {budget:,}, every seed"
    return Gate(
        "sorting", "Sorting, 4 to 10 entities, `ppo`", asks, arms, better_by("attention", "control", 1.2, last_train)
    )


def _mountaincar() -> Gate:
    env, budget = "MountainCar-v0", 1_000_000
    plain = Arm("plain", OWN / "mountaincar.yaml", env, budget, wall_seconds=600.0)
    normalized = Arm("normalized", OWN / "mountaincar.yaml", env, budget, -180.0, ("network_settings.normalize=true",))
    rule = all_of(stays_below("plain", -190.0), reaches("normalized", -180.0, budget, far_off=-200.0, needed=2))
    asks = "below -190 through 1,000,000, every seed; with the normalizer -180 (2 of 3)"
    return Gate("mountaincar-control", "MountainCar-v0, `ppo` alone (control)", asks, (plain, normalized), rule)


def _explores(signal: str) -> Gate:
    arm = Arm(signal, SHIPPED / f"mountaincar-{signal}.yaml", "MountainCar-v0", 1_000_000, -180.0)
    rule = reaches(signal, -180.0, 1_000_000, far_off=-200.0, needed=2)
    return Gate(
        f"mountaincar-{signal}",
        f"MountainCar-v0, `ppo` + {signal}",
        "above -180 train in 1,000,000, 2 of 3",
        (arm,),
        rule,
    )


def _lessons() -> Gate:
    env, run_file, budget = f"{ENVIRONMENTS}.combination:Combination", OWN / "combination.yaml", 400_000
    lessons = Arm("lessons", run_file, env, budget, 0.8)
    control = Arm("control", run_file, env, budget, 0.8, options=("--set", "environment_parameters.length=12"))
    return Gate(
        "lessons",
        "Combination lock of 3 to 12 digits, `ppo`",
        f"0.8 train at 12 digits in half the steps of the control without lessons, every seed, within {budget:,}",
        (lessons, control),
        sooner_than("lessons", "control", 0.5),
    )


def _simple_spread() -> Gate:
    arm = Arm(
        "ppo", SHIPPED / "simple-spread.yaml", "simple_spread_v3", 1_000_000, actor="pettingzoo", actors=1, envs=16
    )
    asks = (
        "-18 train after 1,000,000 steps of agents (random -26; Mava, 3,000,000: MADDPG about -25, MAD4PG close to -20)"
    )
    rule = at_least("ppo", -18.0, last_train, "train", far_off=-20.0)
    return Gate("simple-spread", "simple_spread_v3, three agents, `ppo`", asks, (arm,), rule)


GATES: tuple[Gate, ...] = (
    _cartpole("ppo", "cartpole.yaml", 475.0, 95_000, 400.0),
    _cartpole("appo", "cartpole-appo.yaml", 475.0, 200_000, 400.0),
    _cartpole("impala", "cartpole-impala.yaml", 450.0, 500_000, 350.0),
    _cartpole_ranks(),
    _lag(),
    _pendulum_sac(),
    poca(),
    group_rewards(),
    *BENCHMARKS,
    _memory(),
    _catch(),
    _catch_nature(),
    _sorting(),
    _simple_spread(),
    _lessons(),
    self_play(),
    connect_four(),
    shogi(),
    _mountaincar(),
    _explores("curiosity"),
    _explores("rnd"),
    *IMITATION,
    stock_poca(),
    stock_self_play(),
)
"""All gates, in the order in which they run."""
