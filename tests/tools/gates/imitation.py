"""Gates of imitation: a policy is trained and recorded, and another one learns from the recording."""

from dataclasses import replace

from tests.tools.gates.gate import OWN, SHIPPED, Arm, Gate
from tests.tools.gates.rules import all_of, imitates

SHARE = 0.8
"""Of the expert's gain over chance."""
RANDOM_RETURNS = {"CartPole-v1": 22.3, "Pendulum-v1": -1227.0}
"""Mean return of uniformly drawn actions, over 1,000 episodes; a test draws some of them again."""


def _imitation(kind: str, expert: Arm, cloning: Arm, gail: Arm) -> Gate:
    chance = RANDOM_RETURNS[expert.env]
    arms = (
        replace(expert, name="expert", greedy_episodes=100, recorded_episodes=10),
        replace(cloning, name="cloning", greedy_episodes=100, demonstrations="expert"),
        replace(gail, name="gail", greedy_episodes=100, demonstrations="expert"),
    )
    rule = all_of(
        imitates("cloning", "expert", chance, SHARE),
        imitates("gail", "expert", chance, SHARE),
    )
    asks = "10 episodes: (R - random) / (expert - random) at least 0.8, greedy, cloning and GAIL each"
    return Gate(f"imitation-{kind}", f"{expert.env}, imitation", asks, arms, rule)


IMITATION: tuple[Gate, ...] = (
    _imitation(
        "cartpole",
        Arm("", SHIPPED / "cartpole.yaml", "CartPole-v1", 95_000, 475.0),
        Arm("", OWN / "cartpole-cloning.yaml", "CartPole-v1", 20_000,
            settings=("behavioral_cloning.demo_path={demo}",)),
        Arm("", OWN / "cartpole-gail.yaml", "CartPole-v1", 200_000,
            settings=("reward_signals.gail.demo_path={demo}",)),
    ),
    _imitation(
        "pendulum",
        Arm("", SHIPPED / "pendulum.yaml", "Pendulum-v1", 500_000, -200.0),
        Arm("", OWN / "pendulum-cloning.yaml", "Pendulum-v1", 20_000,
            settings=("behavioral_cloning.demo_path={demo}",)),
        Arm("", OWN / "pendulum-gail.yaml", "Pendulum-v1", 300_000,
            settings=("reward_signals.gail.demo_path={demo}",)),
    ),
)  # fmt: skip
"""One discrete task and one continuous one."""
