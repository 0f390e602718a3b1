"""The tasks of a scripted player by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from tests.tools.players.arena import Arena, Habits
from tests.tools.players.cartpole import CartPole
from tests.tools.players.crowd import Crowd
from tests.tools.players.duel import Duel
from tests.tools.players.faults import Late
from tests.tools.players.guess import Guess
from tests.tools.players.pendulum import Pendulum
from tests.tools.players.pictures import Pictures
from tests.tools.players.plate import BRIEF_STEPS, Plate
from tests.tools.players.scenery import SCENES, Scenery
from tests.tools.players.task import EpisodeSink, Scene, Task

LATE_MESSAGES = 30

Maker = Callable[[int, EpisodeSink], Task]


def _cartpole(agents: int, sink: EpisodeSink) -> Task:
    return Arena(CartPole(agents), "CartPole?team=0", sink)


def _pendulum(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Pendulum(agents), "Pendulum?team=0", sink)


def _hybrid(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Guess(agents), "Hybrid?team=0", sink)


def _groups(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Guess(agents, 0, (3,), step_limit=10), "Groups?team=0", sink, Habits(group_size=2))


def _comers(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Guess(agents, 0, (4,), 7), "Comers?team=0", sink, Habits(first_id=100, fresh_ids=True, periods=3))


def _goal(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Guess(agents, 1, (), goal=True), "Goal?team=0", sink)


def _crowd(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Crowd(agents), "Crowd?team=0", sink)


def _png(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Pictures(agents), "Pictures?team=0", sink)


def _channels_last(agents: int, sink: EpisodeSink) -> Task:
    return Arena(Pictures(agents, png=False, channels_last=True), "Rows?team=0", sink)


def _late(agents: int, sink: EpisodeSink) -> Task:
    return Scene([_cartpole(agents, sink), Late(_hybrid(agents, sink), LATE_MESSAGES)])


def _teams(agents: int, sink: EpisodeSink) -> Task:
    behaviors = ((f"Teams?team={team}", Habits(first_id=team * agents)) for team in range(2))
    return Scene([Arena(Guess(agents, 0, (2,)), behavior, sink, habits) for behavior, habits in behaviors])


def _duel(agents: int, sink: EpisodeSink) -> Task:
    return Duel(agents, sink)


def _asymmetric(agents: int, sink: EpisodeSink) -> Task:
    return Duel(agents, sink, ("Striker", "Goalie"))


def _everything(agents: int, sink: EpisodeSink) -> Task:
    makers = (_cartpole, _pendulum, _hybrid, _groups, _comers, _teams, _png, _channels_last)
    return Scene(maker(agents, sink) for maker in makers)


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


def _strikers_vs_goalie(agents: int, sink: EpisodeSink) -> Task:
    return Scene(_scene(name)(agents, sink) for name in ("Striker", "Goalie"))


TASKS: Mapping[str, Maker] = MappingProxyType(
    {
        "cartpole": _cartpole,
        "pendulum": _pendulum,
        "hybrid": _hybrid,
        "groups": _groups,
        "comers": _comers,
        "crowd": _crowd,
        "goal": _goal,
        "plate": Plate,
        "brief-plate": partial(Plate, steps=BRIEF_STEPS),
        "png": _png,
        "channels-last": _channels_last,
        "late": _late,
        "everything": _everything,
        "scenes": _scenes,
        "StrikersVsGoalie": _strikers_vs_goalie,
        "teams": _teams,
        "duel": _duel,
        "asymmetric": _asymmetric,
        **{name: _scene(name) for name in SCENES},
    }
)
