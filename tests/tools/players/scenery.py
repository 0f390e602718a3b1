"""Scenes with the sensors and actions of ML-Agents' examples and random contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from rollcast.unity.communicator_objects import observation_pb2

from tests.tools.players.crowd import entities
from tests.tools.players.pictures import encode_png
from tests.tools.players.simulation import Floats, Outcome, Simulation, Whole, vector

_VIEWS = 32
"""Moments of which each observation is one: many agents with wide sensors would else spend their time drawing."""


@dataclass(frozen=True, slots=True)
class Grid:
    """An image or grid [C, H, W]; with ``png`` as PNG files of three channels each."""

    shape: tuple[int, int, int]
    png: bool = False


@dataclass(frozen=True, slots=True)
class Buffer:
    """A list of up to ``most`` entities of ``size`` numbers."""

    most: int
    size: int


Sensor = int | Grid | Buffer


@dataclass(frozen=True, slots=True)
class SceneSpec:
    """Observations and actions of a scene's agents."""

    sensors: tuple[Sensor, ...]
    continuous: int = 0
    branches: tuple[int, ...] = ()
    group_size: int = 0
    teams: tuple[int, ...] = (0,)


SCENES: Mapping[str, SceneSpec] = MappingProxyType(
    {
        "3DBall": SceneSpec((8,), 2),
        "3DBallHard": SceneSpec((45,), 2),
        "Walker": SceneSpec((243,), 39),
        "Crawler": SceneSpec((126, 32), 20),
        "Worm": SceneSpec((64,), 9),
        "Basic": SceneSpec((20,), 0, (3,)),
        "Hallway": SceneSpec((105, 3), 0, (5,)),
        "PushBlock": SceneSpec((105, 105), 0, (7,)),
        "Pyramids": SceneSpec((56, 56, 56, 4), 0, (5,)),
        "BigWallJump": SceneSpec((210, 210, 24), 0, (3, 3, 3, 2)),
        "SmallWallJump": SceneSpec((210, 210, 24), 0, (3, 3, 3, 2)),
        "Sorter": SceneSpec((Buffer(20, 23), 10, 8), 0, (3, 3, 3)),
        "GridFoodCollector": SceneSpec((Grid((5, 40, 40)),), 3, (2,)),
        "VisualFoodCollector": SceneSpec((Grid((3, 84, 84), png=True), 1), 3, (2,)),
        "PushBlockCollab": SceneSpec((Grid((6, 20, 20)), 10), 0, (7,), group_size=3),
        "DungeonEscape": SceneSpec((371, 1), 0, (7,), group_size=3),
        "SoccerTwos": SceneSpec((336,), 0, (3, 3, 3), group_size=2, teams=(0, 1)),
        "Tennis": SceneSpec((27,), 3, teams=(0, 1)),
        "Striker": SceneSpec((231, 63), 0, (3, 3, 3), group_size=2),
        "Goalie": SceneSpec((738,), 0, (3, 3, 3), teams=(1,)),
    }
)


class Scenery(Simulation):
    """Agents with random observations and rewards.

    Args:
        spec: What they see and do.
        agents: How many.
        length: Of an episode, which ends by itself every other time and is interrupted else.
    """

    def __init__(self, spec: SceneSpec, agents: int, length: int = 60) -> None:
        super().__init__(agents)
        self.continuous = spec.continuous
        self.branches = spec.branches
        self._sensors = spec.sensors
        self._length = length
        self._views: list[list[observation_pb2.ObservationProto]] = []

    def _begin(self, agent: int) -> None:
        """Draws what there is to be seen, the first time."""
        generator = self._generator
        if not self._views:
            self._views = [
                [_look(sensor, place, generator) for place, sensor in enumerate(self._sensors)] for _ in range(_VIEWS)
            ]
        self._steps[agent] = generator.integers(self._length // 2)

    def observe(self, agent: int) -> Sequence[observation_pb2.ObservationProto]:
        """Returns a random observation."""
        return self._views[int(self._generator.integers(_VIEWS))]

    def advance(self, agents: Whole, continuous: Floats, discrete: Whole) -> Outcome:
        """Returns random rewards and ends."""
        self._steps[agents] += 1
        rewards = np.where(self._generator.random(len(agents)) < 0.1, self._generator.normal(size=len(agents)), 0.0)
        return Outcome(rewards, self._steps[agents] >= self._length)


def _look(sensor: Sensor, place: int, generator: np.random.Generator) -> observation_pb2.ObservationProto:
    name = f"sensor{place}"
    if isinstance(sensor, int):
        return vector(generator.normal(size=sensor), name)
    if isinstance(sensor, Buffer):
        return entities(
            generator.normal(size=(int(generator.integers(sensor.most + 1)), sensor.size)), sensor.most, name
        )
    observation = observation_pb2.ObservationProto(name=name, shape=sensor.shape, dimension_properties=[1, 2, 2])
    if not sensor.png:
        observation.float_data.data.extend(generator.random(int(np.prod(sensor.shape))).tolist())
        return observation
    channels, height, width = sensor.shape
    pixels = generator.integers(0, 256, (channels // 3, height, width, 3)).astype(np.uint8)
    observation.compression_type = observation_pb2.PNG
    observation.compressed_data = b"".join(encode_png(picture) for picture in pixels)
    observation.compressed_channel_mapping.extend(range(channels))
    return observation
