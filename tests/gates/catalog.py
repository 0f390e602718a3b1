"""The gates there are."""

from dataclasses import replace

import yaml

from tests.gates.gate import OWN, SHIPPED, Arm, Gate
from tests.gates.imitation import IMITATION
from tests.gates.lag.training import train_appo, train_control
from tests.gates.rules import (
    all_of,
    at_least,
    better_by,
    greedy,
    last_train,
    misses,
    never_above,
    reaches,
    reports,
    stays_below,
    updates_per_step,
)

ENVIRONMENTS = "tests.gates.environments"


def _solved(name: str, title: str, arm: Arm, *, far_off: float, seeds: tuple[int, ...] = (1, 2, 3)) -> Gate:
    """A gate that asks for nothing but the target of its only arm, within its budget."""
    target = arm.target if arm.target is not None else 0.0
    asks = f"{target:g} train in {arm.budget_steps:,}"
    return Gate(name, title, asks, (arm,), reaches(arm.name, target, arm.budget_steps, far_off=far_off), seeds)


def _cartpole(trainer: str, run_file: str, target: float, budget_steps: int, far_off: float) -> Gate:
    arm = Arm(trainer, SHIPPED / run_file, "CartPole-v1", budget_steps, target)
    return _solved(f"cartpole-{trainer}", f"CartPole-v1, `{trainer}`", arm, far_off=far_off)


def _lag() -> Gate:
    """Both arms act with the policy of eight versions ago; they differ in what they make of the recorded likelihoods."""
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


def _lunarlander() -> Gate:
    arm = Arm("ppo", SHIPPED / "lunarlander.yaml", "LunarLander-v3", 1_000_000, 230.0)
    return _solved("lunarlander-ppo", "LunarLander-v3, `ppo`", arm, far_off=180.0)


def _ratios(name: str, title: str, arm: Arm, lowest: float) -> Gate:
    """Says what both forms of PPO's ratio reach with otherwise equal settings."""
    arms = tuple(
        replace(arm, name=ratio, settings=(*arm.settings, f"hyperparameters.ratio={ratio}"))
        for ratio in ("per_action", "joint")
    )
    rule = reports("per_action", "joint", at_least=lowest)
    asks = f"both ratios reported after {arm.budget_steps:,}, each at least {lowest:g}"
    return Gate(name, title, asks, arms, rule, seeds=(1,))


def _bipedal() -> Gate:
    arm = Arm("", SHIPPED / "bipedalwalker.yaml", "BipedalWalker-v3", 2_000_000)
    return _ratios("bipedalwalker-ratio", "BipedalWalker-v3 (4 axes), `ppo`", arm, 0.0)


def _docking() -> Gate:
    arm = Arm("", OWN / "docking.yaml", f"{ENVIRONMENTS}.docking:Docking", 300_000)
    return _ratios("docking-ratio", "Docking (MultiDiscrete [3, 5, 3]), `ppo`", arm, 40.0)


def _memory() -> Gate:
    env = f"{ENVIRONMENTS}.masked_cartpole:make"
    lstm = Arm("lstm", SHIPPED / "cartpole-memory.yaml", env, 1_000_000, 400.0)
    control = Arm("without", OWN / "cartpole-masked.yaml", env, 1_000_000)
    rule = all_of(reaches("lstm", 400.0, 1_000_000, far_off=250.0), stays_below("without", 150.0))
    asks = "400 train in 1,000,000; without memory under 150"
    return Gate("memory", "CartPole without velocities, `ppo` + LSTM", asks, (lstm, control), rule)


def _catch() -> Gate:
    arm = Arm("simple", OWN / "catch.yaml", f"{ENVIRONMENTS}.catch:Catch", 100_000, 0.9)
    return _solved("catch", "Catch, 84x84 pixels, `simple`", arm, far_off=0.6)


def _catch_nature() -> Gate:
    setting = ("network_settings.vis_encode_type=nature_cnn",)
    env = f"{ENVIRONMENTS}.catch:Catch"
    arm = Arm("nature_cnn", OWN / "catch.yaml", env, 100_000, 0.9, setting)
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
    rule = all_of(
        never_above("plain", -200.0, needed=2), reaches("normalized", -180.0, budget, far_off=-200.0, needed=2)
    )
    asks = "-200 through 1,000,000, no episode ends early; with the normalizer it learns (2 of 3 each)"
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


GATES: tuple[Gate, ...] = (
    _cartpole("ppo", "cartpole.yaml", 475.0, 95_000, 400.0),
    _cartpole("appo", "cartpole-appo.yaml", 475.0, 200_000, 400.0),
    _cartpole("impala", "cartpole-impala.yaml", 450.0, 500_000, 350.0),
    _lag(),
    _pendulum_sac(),
    _lunarlander(),
    _bipedal(),
    _docking(),
    _memory(),
    _catch(),
    _catch_nature(),
    _sorting(),
    _mountaincar(),
    _explores("curiosity"),
    _explores("rnd"),
    *IMITATION,
)
"""All gates, in the order in which they run."""
