"""The tasks of a scripted player by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from tests.tools.players.arena import REGULAR, Arena, Habits
from tests.tools.players.cartpole import CartPole
from tests.tools.players.crowd import Crowd
from tests.tools.players.duel import Duel
from tests.tools.players.guess import Guess
from tests.tools.players.pendulum import Pendulum
from tests.tools.players.pictures import Pictures
from tests.tools.players.plate import BRIEF_STEPS, Plate
from tests.tools.players.scenery import SCENES, Scenery
from tests.tools.players.simulation import Simulation
from tests.tools.players.task import EpisodeSink, Scene, Task

Maker = Callable[[int, EpisodeSink], Task]


def _arena(name: str, simulation: Callable[[int], Simulation], habits: Habits = REGULAR) -> Maker:
    return lambda agents, sink: Arena(simulation(agents), f"{name}?team=0", sink, habits)


_ARENAS: Mapping[str, Maker] = {
    "cartpole": _arena("CartPole", CartPole),
    "cartpole-of-clients": _arena("CartPole", partial(CartPole, sensor="obs")),
    "pendulum": _arena("Pendulum", Pendulum),
    "hybrid": _arena("Hybrid", Guess),
    "groups": _arena("Groups", partial(Guess, continuous=0, branches=(3,), step_limit=10), Habits(group_size=2)),
    "comers": _arena(
        "Comers",
        partial(Guess, continuous=0, branches=(4,), length=7),
        Habits(first_id=100, fresh_ids=True, periods=3),
    ),
    "goal": _arena("Goal", partial(Guess, continuous=1, branches=(), goal=True)),
    "crowd": _arena("Crowd", Crowd),
    "png": _arena("Pictures", Pictures),
    "channels-last": _arena("Rows", partial(Pictures, png=False, channels_last=True)),
}


def _teams(agents: int, sink: EpisodeSink) -> Task:
    behaviors = ((f"Teams?team={team}", Habits(first_id=team * agents)) for team in range(2))
    return Scene([Arena(Guess(agents, 0, (2,)), behavior, sink, habits) for behavior, habits in behaviors])


def _everything(agents: int, sink: EpisodeSink) -> Task:
    names = ("cartpole", "pendulum", "hybrid", "groups", "comers", "teams", "png", "channels-last")
    return Scene(TASKS[name](agents, sink) for name in names)


def _scenes(agents: int, sink: EpisodeSink) -> Task:
    return Scene(_scene(name)(agents, sink) for name in SCENES)


def _scene(name: str) -> Maker:
    spec, groups = SCENES[name], 1000 * list(SCENES).index(name)  # a group has agents of one behavior

    def make(agents: int, sink: EpisodeSink) -> Task:
        agents = max(agents, spec.group_size)
        return Scene(
            Arena(
                Scenery(spec, agents),
                f"{name}?team={team}",
                sink,
                Habits(agents * team, group_size=spec.group_size, first_group=groups + agents * team + 1),
            )
            for team in spec.teams
        )

    return make


TASKS: Mapping[str, Maker] = MappingProxyType(
    {
        **_ARENAS,
        "plate": Plate,
        "brief-plate": partial(Plate, steps=BRIEF_STEPS),
        "everything": _everything,
        "scenes": _scenes,
        "teams": _teams,
        "duel": Duel,
        "asymmetric": partial(Duel, names=("Striker", "Goalie")),
    }
)
