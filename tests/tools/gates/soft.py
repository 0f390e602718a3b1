"""Studies of sac: the same training with each value of a setting, for its default; and a gate of an hour and a half.

`make gates GATES=sac` runs the studies, besides the gate `pendulum-sac`, which has another beginning of its name;
`make gates GATES=halfcheetah-sac` runs the gate.
"""

from tests.tools.gates.gate import OWN, SHIPPED, Arm, Gate
from tests.tools.gates.rules import at_least, greedy
from tests.tools.gates.study import study

RANDOM = "hyperparameters.buffer_init_actions=uniform"


def _halfcheetah() -> Gate:
    arm = Arm(
        "sac", OWN / "mujoco-sac.yaml", "HalfCheetah-v5", 400_000, actors=1, envs=1, greedy_episodes=100,
        wall_seconds=20_000.0,
    )  # fmt: skip
    return Gate(
        "halfcheetah-sac",
        "HalfCheetah-v5, `sac`; after 1,000,000 steps: rl-zoo 9,535 +- 100 (v3, one run, greedy), CleanRL 9,635 as acted",
        "greedy 9,000 after 400,000, one seed",
        (arm,),
        at_least("sac", 9_000.0, greedy, "greedy", far_off=7_000.0),
        seeds=(1,),
        length="study",
    )


STUDIES: tuple[Gate, ...] = (
    study(
        "sac-start",
        "Pendulum-v1, first actions of `sac`",
        Arm(
            "",
            SHIPPED / "pendulum-sac.yaml",
            "Pendulum-v1",
            20_000,
            settings=("hyperparameters.buffer_init_steps=1000",),
            actors=1,
            envs=1,
        ),
        {"policy": (), "uniform": (RANDOM,)},
    ),
    study(
        "sac-sparse",
        "MountainCarContinuous-v0, temperature of `sac`",
        Arm("", OWN / "mountaincar-continuous-sac.yaml", "MountainCarContinuous-v0", 50_000, actors=1, envs=1),
        {
            "learned": (),
            "fixed": ("hyperparameters.entcoef=0.1",),
            "fixed-uniform": ("hyperparameters.entcoef=0.1", RANDOM),
        },
    ),
    study(
        "sac-burn-in",
        "CartPole without velocities, burn-in of `sac`",
        Arm("", OWN / "cartpole-memory-sac.yaml", "deploy.examples.memory.masked_cartpole:make", 60_000, actors=1),
        {
            "none": (),
            "eight": ("network_settings.memory.sequence_length=24", "hyperparameters.burn_in=8"),
            "sixteen": ("network_settings.memory.sequence_length=32", "hyperparameters.burn_in=16"),
        },
    ),
    _halfcheetah(),
)
"""The studies; each arm trains on as many steps of a sequence as the others."""
