"""Studies of `ppo` with Box actions for the defaults of settings; HalfCheetah needs `gymnasium[mujoco]`.

`make gates GATES=NAME` runs those with a beginning of a name, five seeds of each value:

- `log-std`: the initial exploration, which decides the constant `learner.networks.heads.BOX_LOG_STD`.
- `ratio`: the ratio of single axes or of the whole action.
- `critic`: the weight of the critic's loss, with the critic's targets scaled.
- `clip`: the limit of normalized observations.
"""

from tests.tools.gates.gate import OWN, SHIPPED, Arm, Gate
from tests.tools.gates.study import study
from tests.tools.gates.zoo import ENTRIES, behavior, command_line

STARTS = {"third": -1.1, "half": -0.7, "whole": 0.0}
"""Values of ``log_std_init``: the standard deviation at the start is about this part of the half-range."""


PENDULUM = Arm(
    "", SHIPPED / "pendulum.yaml", "Pendulum-v1", 100_000, settings=command_line(behavior(ENTRIES["Pendulum-v1"])),
    actors=1, envs=4,
)  # fmt: skip
WALKER = Arm("", SHIPPED / "bipedalwalker.yaml", "BipedalWalker-v3", 1_000_000, actors=1)
CHEETAH = Arm("", OWN / "mujoco.yaml", "HalfCheetah-v5", 500_000, actors=1)
LANDER = Arm(
    "", SHIPPED / "lunarlander.yaml", "LunarLander-v3", 500_000, actors=1, env_kwargs={"continuous": True},
)  # fmt: skip
DOCKING = Arm("", OWN / "docking.yaml", "tests.tools.gates.environments.docking:Docking", 300_000, actors=1)


def _log_std(task: str, arm: Arm) -> Gate:
    changes = {
        name: ("network_settings.std=free", f"network_settings.log_std_init={start}") for name, start in STARTS.items()
    }
    return study(f"log-std-{task}", f"{arm.env}, initial exploration", arm, changes)


def _ratio(task: str, arm: Arm) -> Gate:
    changes = {ratio: (f"hyperparameters.ratio={ratio}",) for ratio in ("per_action", "joint")}
    return study(f"ratio-{task}", f"{arm.env}, ratio of `ppo`", arm, changes)


def _critic(task: str, arm: Arm) -> Gate:
    values = {"quarter": 0.25, "half": 0.5, "whole": 1.0}
    changes = {name: (f"hyperparameters.value_coefficient={value}",) for name, value in values.items()}
    return study(f"critic-{task}", f"{arm.env}, `value_coefficient` of `ppo`", arm, changes)


def _clip(task: str, arm: Arm) -> Gate:
    changes = {name: (f"network_settings.observation_clip={value}",) for name, value in (("five", 5.0), ("ten", 10.0))}
    return study(f"clip-{task}", f"{arm.env}, `observation_clip` of `ppo`", arm, changes)


STUDIES: tuple[Gate, ...] = (
    _log_std("pendulum", PENDULUM),
    _log_std("bipedalwalker", WALKER),
    _log_std("halfcheetah", CHEETAH),
    _log_std("lunarlander", LANDER),
    _ratio("bipedalwalker", WALKER),
    _ratio("halfcheetah", CHEETAH),
    _ratio("lunarlander", LANDER),
    _ratio("docking", DOCKING),
    _critic("pendulum", PENDULUM),
    _critic("lunarlander", LANDER),
    _critic("halfcheetah", CHEETAH),
    _clip("lunarlander", LANDER),
    _clip("halfcheetah", CHEETAH),
)
"""One study for each setting and task."""
