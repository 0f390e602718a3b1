"""A server of dm_env_rpc with two games, which keeps the rules of the protocol; tests bend its answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc
from dm_env_rpc.v1.dm_env_rpc_pb2 import (
    ActionObservationSpecs,
    CreateWorldResponse,
    DataType,
    DestroyWorldResponse,
    EnvironmentResponse,
    EnvironmentStateType,
    JoinWorldResponse,
    LeaveWorldResponse,
    ResetResponse,
    ResetWorldResponse,
    StepResponse,
    TensorSpec,
)
from dm_env_rpc.v1.spec_manager import SpecManager
from dm_env_rpc.v1.tensor_spec_utils import bounds, set_bounds
from dm_env_rpc.v1.tensor_utils import unpack_tensor

RUNNING, TERMINATED, INTERRUPTED = (
    EnvironmentStateType.RUNNING,
    EnvironmentStateType.TERMINATED,
    EnvironmentStateType.INTERRUPTED,
)


def tensor_spec(name: str, dtype: Any, shape: tuple[int, ...] = (), low: Any = None, high: Any = None) -> Any:
    """Returns the spec of a tensor."""
    spec = TensorSpec(name=name, dtype=dtype, shape=shape)
    if low is not None or high is not None:
        set_bounds(spec, low, high)
    return spec


class Catch:
    """A ball falls, and a paddle catches it: the reward is 1, or -1.

    Args:
        seed: Of the columns in which balls fall.
        settings: `size` of the field, and `speed` of the ball.
    """

    settings = frozenset({"seed", "size", "speed"})
    actions = (tensor_spec("paddle", DataType.INT8, low=-1, high=1),)

    def __init__(self, seed: int, settings: Mapping[str, Any]) -> None:
        self.size = int(settings.get("size", 5))
        self.speed = int(settings.get("speed", 1))
        self._random = np.random.default_rng(seed)
        self.observations = (
            tensor_spec("field", DataType.FLOAT, (self.size, self.size), 0.0, 1.0),
            tensor_spec("reward", DataType.FLOAT),
            tensor_spec("discount", DataType.DOUBLE),
        )

    def begin(self) -> None:
        """Drops a ball."""
        self._ball, self._height, self._paddle = int(self._random.integers(self.size)), 0, self.size // 2

    def act(self, actions: Mapping[str, Any]) -> int:
        """Moves the paddle, and lets the ball fall."""
        self._paddle = int(np.clip(self._paddle + int(actions.get("paddle", 0)), 0, self.size - 1))
        self._height += self.speed
        return int(RUNNING if self._height < self.size - 1 else TERMINATED)

    def seen(self) -> dict[str, Any]:
        """Returns all observations."""
        field = np.zeros((self.size, self.size), np.float32)
        is_over = self._height >= self.size - 1
        field[min(self._height, self.size - 1), self._ball] = field[-1, self._paddle] = 1
        return {
            "field": field,
            "reward": (1.0 if self._ball == self._paddle else -1.0) if is_over else 0.0,
            "discount": 0.0 if is_over else 1.0,
        }


class Everything:
    """A game with tensors of every kind, interrupted after three steps; it repeats the last actions as observations.

    Args:
        seed: Ignored.
        settings: None are known.
    """

    settings = frozenset({"seed"})
    actions = (
        tensor_spec("aim", DataType.FLOAT, (2,), [-1.0, 0.0], [1.0, 10.0]),
        tensor_spec("gear", DataType.INT64, low=3, high=5),
        tensor_spec("keys", DataType.UINT8, (2, 2), 0, [[1, 1], [2, 3]]),
        tensor_spec("lamp", DataType.BOOL),
        tensor_spec("thrust", DataType.DOUBLE),
        tensor_spec("words", DataType.STRING),
    )
    observations = (
        tensor_spec("aim", DataType.FLOAT, (2,)),
        tensor_spec("camera", DataType.UINT8, (6, 8, 3)),
        tensor_spec("gear", DataType.INT64),
        tensor_spec("keys", DataType.UINT32, (2, 2)),
        tensor_spec("lamp", DataType.BOOL),
        tensor_spec("score", DataType.INT32, (1,)),
        tensor_spec("thrust", DataType.DOUBLE),
        tensor_spec("title", DataType.STRING),
        tensor_spec("trail", DataType.FLOAT, (-1, 2)),
    )

    def __init__(self, seed: int, settings: Mapping[str, Any]) -> None:
        self.last: dict[str, Any] = {}

    def begin(self) -> None:
        """Begins."""
        self.steps, self.last = 0, {}

    def act(self, actions: Mapping[str, Any]) -> int:
        """Notes the actions."""
        self.steps, self.last = self.steps + 1, dict(actions)
        return int(RUNNING if self.steps < 3 else INTERRUPTED)

    def seen(self) -> dict[str, Any]:
        """Returns all observations."""
        return {
            "aim": self.last.get("aim", np.zeros(2)),
            "camera": np.full((6, 8, 3), self.steps, np.uint8),
            "gear": self.last.get("gear", 0),
            "keys": self.last.get("keys", np.zeros((2, 2))),
            "lamp": self.last.get("lamp", False),
            "score": [self.steps],
            "thrust": self.last.get("thrust", 0.0),
            "title": "a game",
            "trail": np.zeros((self.steps, 2)),
        }


Twist = Callable[[str, Any], "EnvironmentResponse | None"]


class Agent:
    """One stream of a client.

    Args:
        server: Whose worlds there are.
    """

    def __init__(self, server: Worlds) -> None:
        self._server = server
        self._world: Any = None
        self._state = INTERRUPTED
        self._overrides: dict[str, Any] = {}

    def answer(self, request: Any) -> Any:
        """Returns the answer to a request.

        Raises:
            Exception: The request is refused.
        """
        kind = request.WhichOneof("payload")
        found = getattr(self, f"_{kind}")(getattr(request, kind))
        return EnvironmentResponse(**{kind: found})

    def _create_world(self, request: Any) -> Any:
        return CreateWorldResponse(world_name=self._server.create(_read(request.settings)))

    def _join_world(self, request: Any) -> Any:
        if self._world is not None:
            raise ValueError("this agent has joined a world")
        settings = _read(request.settings)
        if settings.keys() - {"player"}:
            raise ValueError(f"no settings of agents: {sorted(settings)}")
        self._world = self._server.game(request.world_name)
        self._server.joined.append(settings)
        shift = next(self._server.shifts)
        self._actions = SpecManager(dict(enumerate(self._world.actions, shift)))
        self._observations = SpecManager(dict(enumerate(self._world.observations, 100 + shift)))
        self._state = INTERRUPTED
        return JoinWorldResponse(specs=self._specs())

    def _specs(self) -> Any:
        return ActionObservationSpecs(actions=self._actions.specs_by_uid, observations=self._observations.specs_by_uid)

    def _step(self, request: Any) -> Any:
        world = self._joined()
        if self._state != RUNNING:
            world.begin()
            self._state = RUNNING
        else:
            actions = self._actions.unpack(request.actions)
            for name, value in actions.items():
                _check(self._actions.name_to_spec(name), value)
            self._state = world.act(actions)
        seen = self._observations.pack(world.seen())
        for uid in request.requested_observations:
            if uid not in seen:
                raise ValueError(f"there is no observation {uid}")
        return StepResponse(state=self._state, observations={uid: seen[uid] for uid in request.requested_observations})

    def _reset(self, request: Any) -> Any:
        self._joined()
        self._world = self._server.again(self._world, _read(request.settings))
        self._state = INTERRUPTED
        return ResetResponse(specs=self._specs())

    def _reset_world(self, request: Any) -> Any:
        self._server.game(request.world_name)
        return ResetWorldResponse()

    def _leave_world(self, request: Any) -> Any:
        self._world = None
        return LeaveWorldResponse()

    def _destroy_world(self, request: Any) -> Any:
        if self._world is not None:
            raise ValueError("an agent is still in the world")
        self._server.destroy(request.world_name)
        return DestroyWorldResponse()

    def _joined(self) -> Any:
        if self._world is None:
            raise ValueError("this agent has joined no world")
        return self._world


class Worlds(dm_env_rpc_pb2_grpc.EnvironmentServicer):  # type: ignore[misc]
    """The server.

    Args:
        game: Makes a world from a seed and settings.
        twist: Changes the answers, by kind; one that it returns as None ends the stream.

    Attributes:
        names: Names of the worlds that exist.
        requests: Every request, by stream.
        created: Settings of every created world.
        joined: Settings of every agent that joined.
        resets: Settings of every reset.
    """

    def __init__(self, game: Any = Catch, twist: Twist = lambda _, answer: answer) -> None:
        self._game = game
        self.twist = twist
        self._worlds: dict[str, Any] = {}
        self._numbers = itertools.count()
        self.shifts = itertools.count(1)
        self._lock = threading.Lock()
        self.requests: list[list[Any]] = []
        self.created: list[dict[str, Any]] = []
        self.joined: list[dict[str, Any]] = []
        self.resets: list[dict[str, Any]] = []

    @property
    def names(self) -> list[str]:
        """Returns the names of the worlds that exist."""
        return list(self._worlds)

    def create(self, settings: dict[str, Any]) -> str:
        """Creates a world and returns its name."""
        with self._lock:
            name = f"world {next(self._numbers)}"
            self._worlds[name] = self._made(settings)
            self.created.append(settings)
            return name

    def game(self, name: str) -> Any:
        """Returns a world."""
        if name not in self._worlds:
            raise ValueError(f"there is no world {name!r}")
        return self._worlds[name]

    def again(self, world: Any, settings: dict[str, Any]) -> Any:
        """Returns a world that replaces another one."""
        self.resets.append(settings)
        made = self._made({**world.given, **settings}) if settings else world
        for name, each in self._worlds.items():
            if each is world:
                self._worlds[name] = made
        return made

    def destroy(self, name: str) -> None:
        """Destroys a world."""
        self.game(name)
        del self._worlds[name]

    def _made(self, settings: dict[str, Any]) -> Any:
        if unknown := sorted(settings.keys() - self._game.settings):
            raise ValueError(f"unknown\nsettings: {unknown}")
        world = self._game(int(settings.get("seed", 1)), settings)
        world.given = settings
        return world

    def Process(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:
        """Answers the requests of an agent."""
        agent = Agent(self)
        requests: list[Any] = []
        self.requests.append(requests)
        for request in request_iterator:
            requests.append(request)
            kind = request.WhichOneof("payload")
            try:
                answer = agent.answer(request)
            except Exception as error:  # noqa: BLE001 - as the protocol says
                answer = EnvironmentResponse()
                answer.error.code, answer.error.message = 3, str(error)
            twisted = self.twist(kind, answer)
            if twisted is None:
                return
            yield twisted


@contextmanager
def serving(worlds: Worlds, credentials: grpc.ServerCredentials | None = None, port: int = 0) -> Iterator[str]:
    """Serves until the block ends, and yields the address."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=[("grpc.so_reuseport", 0)])
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(worlds, server)
    address = f"127.0.0.1:{port}"
    bound = server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
    server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        server.stop(None).wait()


def _read(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: unpack_tensor(tensor) for name, tensor in settings.items()}


def _check(spec: Any, value: Any) -> None:
    """Refuses an action outside its bounds."""
    if spec.HasField("min") or spec.HasField("max"):
        limit = bounds(spec)
        if np.any(value < limit.min) or np.any(value > limit.max):
            raise ValueError(f"the action {spec.name} is out of bounds: {value}")
