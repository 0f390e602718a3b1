"""The worlds of a server as a batch of environments: all are asked before the first answer is awaited."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import grpc
import numpy as np
from dm_env_rpc.v1.dm_env_rpc_pb2 import EnvironmentStateType, ResetRequest, StepRequest
from dm_env_rpc.v1.tensor_utils import pack_tensor
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.limits import MIB
from rollcast.v1 import policy_pb2

from actor_client.dm_env_rpc.specs import WorldPlan
from actor_client.dm_env_rpc.world import World, WorldFault
from actor_client.envs.base import NO_ENDS, FloatArray, IntArray, MaskArray, Observations, StepResult
from actor_client.envs.errors import EnvironmentFailed, UnknownEnvironment
from actor_client.envs.factory import DEFAULT_BEHAVIOR
from actor_client.envs.parameters import EnvironmentParameters
from actor_client.settings.dm_env_rpc import DmEnvRpcSettings

MAX_MESSAGE_BYTES: Final = 64 * MIB
"""Largest answer of a server: an observation of 1920 x 1080 pixels as fractions has 25 MB."""
CONNECT_SECONDS: Final = 10.0
"""Time for a server to accept a connection; later ones have it at each new attempt."""
LEAVE_SECONDS: Final = 5.0
"""Time for a server to answer that all agents have left."""
_RUNNING: Final = EnvironmentStateType.RUNNING
_ENDS: Final = {
    EnvironmentStateType.TERMINATED: SegmentEnd.TERMINATED,
    EnvironmentStateType.INTERRUPTED: SegmentEnd.TRUNCATED,
}

Read = TypeVar("Read")


class Taken(NamedTuple):
    """What one world answered to a step.

    Attributes:
        observed: Arrays by name.
        reward: The reward; 0 where the action was ignored.
        end: How the sequence ended; None if it runs.
    """

    observed: Mapping[str, NDArray[Any]]
    reward: float
    end: SegmentEnd | None


class WorldBatch:
    """E agents of a dm_env_rpc server, each with a stream of its own; see `EnvBatch`.

    A step after the end of a sequence begins the next one, and the server ignores its action, as the protocol says. So each
    agent takes one step a call, also those that share a world and wait for one another.

    Args:
        settings: The user's settings.

    Raises:
        UnknownEnvironment: No server answers, or it refuses to create or join a world.
        UnsupportedSpace: Its actions or observations cannot be sent.
    """

    takes_parameters = True

    def __init__(self, settings: DmEnvRpcSettings) -> None:
        self.num_envs = settings.num_envs
        self.active: int | None = None
        self.action_masks: MaskArray | None = None
        self._seed_setting = settings.seed_setting
        self._parameters = EnvironmentParameters(self.num_envs)
        security = settings.server_security
        limit = [(f"grpc.max_{way}_message_length", MAX_MESSAGE_BYTES) for way in ("receive", "send")]
        # No pings: a server of gRPC's own defaults ends a connection that pings between two steps.
        self._channel = security.sync_channel(settings.server, [*limit, ("grpc.use_local_subchannel_pool", 1)])
        self._worlds: list[World] = []
        try:
            grpc.channel_ready_future(self._channel).result(CONNECT_SECONDS)
            self._worlds += [World(self._channel, security.metadata()) for _ in range(self.num_envs)]
            self._plan = self._join(settings)
        except grpc.FutureTimeoutError:
            self.close()
            raise UnknownEnvironment(
                f"no server accepts connections at {settings.server} within {CONNECT_SECONDS:g} s; start it, or compare the "
                "address and TLS"
            ) from None
        except EnvironmentFailed as failure:
            self.close()
            raise UnknownEnvironment(f"{settings.server}: {failure.cause}") from None
        except BaseException:
            self.close()
            raise
        self.spec = self._plan.spec

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Sets the parameters of later sequences, which become settings of a reset; see `EnvBatch.assign`."""
        self._parameters.assign(assignment)

    def set_paused(self, *, is_paused: bool) -> None:
        """Does nothing: the protocol has no message for a pause."""

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins new sequences in all worlds; see `EnvBatch.reset`."""
        self._parameters.seed(seeds)
        resets: dict[int, Any] = {}
        for index, world in enumerate(self._worlds):
            given = self._drawn(index)
            if self._seed_setting is not None:
                given[self._seed_setting] = pack_tensor(seeds[index], np.int64)
            if given or world.has_run:  # the first sequence begins without a reset, which a server may lack
                resets[index] = ResetRequest(settings=given)
        self._reset(resets)
        taken = self._step([[]] * self.num_envs)
        return self._plan.encode([each.observed for each in taken])

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Steps each world; see `EnvBatch.step`."""
        begins = np.array([not world.is_running for world in self._worlds])
        self._reset(
            {
                index: ResetRequest(settings=given)
                for index in np.flatnonzero(begins).tolist()
                if (given := self._drawn(index))
            }
        )
        taken = self._step(self._plan.actions(continuous, discrete))
        observations = self._plan.encode([each.observed for each in taken])
        ended = [index for index, each in enumerate(taken) if each.end is not None]
        return StepResult(
            observations=observations,
            rewards=np.array([each.reward for each in taken], np.float32),
            ended=ended,
            ends=np.array([taken[index].end for index in ended], np.uint8) if ended else NO_ENDS,
            final_observations=[values[ended] for values in observations] if ended else None,
            final_masks=None,
            infos=[{}] * len(ended),
            ignored=begins if begins.any() else None,
        )

    def close(self) -> None:
        """Leaves all worlds, and destroys those that were created; see `EnvBatch.close`."""
        worlds, self._worlds = self._worlds, []

        def cut() -> None:
            for world in worlds:
                world.cut()

        timer = threading.Timer(LEAVE_SECONDS, cut)
        timer.daemon = True
        timer.start()
        for world in worlds:
            world.leave()
        for world in worlds:
            world.drain()
        timer.cancel()
        self._channel.close()

    def _join(self, settings: DmEnvRpcSettings) -> WorldPlan:
        """Creates worlds unless the user named one, joins them, and returns the plan of the first.

        Raises:
            EnvironmentFailed: The server refused, or the worlds differ.
            UnsupportedSpace: Actions or observations cannot be sent.
        """
        made, joined = _tensors(settings.create), _tensors(settings.join)
        plans: list[WorldPlan] = []

        def follow(world: World, answer: Any) -> None:
            plans[:] = plans or [
                WorldPlan(
                    answer.specs,
                    settings.behavior or DEFAULT_BEHAVIOR,
                    reward=settings.reward,
                    observe=settings.observe,
                    ignore=settings.ignore,
                )
            ]
            world.actions, world.observations = plans[0].uids(answer.specs)

        if settings.world is None:
            self._ask(lambda _, world: world.create(made), World.created)
        self._ask(lambda _, world: world.join(settings.world, joined), follow)
        return plans[0]

    def _drawn(self, index: int) -> dict[str, Any]:
        """Returns the environment parameters of the next sequence of a world, as settings."""
        return _tensors(self._parameters.draw(index))

    def _reset(self, resets: Mapping[int, Any]) -> None:
        """Resets some worlds, whose UIDs may change."""

        def ask(index: int, world: World) -> None:
            world.is_running = False
            world.send("reset", resets[index])

        def follow(world: World, answer: Any) -> None:
            world.actions, world.observations = self._plan.uids(answer.specs)

        self._ask(ask, follow, list(resets))

    def _step(self, actions: Sequence[Sequence[Any]]) -> list[Taken]:
        """Steps all worlds; actions are not sent to those that begin a sequence."""

        def ask(index: int, world: World) -> None:
            sent = dict(zip(world.actions, actions[index], strict=True)) if world.is_running else {}
            world.send("step", StepRequest(actions=sent, requested_observations=world.observations))

        return self._ask(ask, self._taken)

    def _taken(self, world: World, answer: Any) -> Taken:
        """Reads the answer to a step.

        Raises:
            WorldFault: It is not what the server declared.
        """
        was_running, state = world.is_running, answer.state
        if state != _RUNNING and (state not in _ENDS or not was_running):
            name = EnvironmentStateType.Name(state) if state in EnvironmentStateType.values() else state
            when = "a running sequence" if was_running else "the first step of a sequence"
            raise WorldFault(f"the server answered the state {name} to {when}")
        observed, reward = self._plan.read(answer.observations, world.observations)
        world.is_running, world.has_run = state == _RUNNING, True
        return Taken(observed, reward if was_running else 0.0, _ENDS.get(state))

    def _ask(
        self,
        ask: Callable[[int, World], None],
        read: Callable[[World, Any], Read],
        indices: Sequence[int] | None = None,
    ) -> list[Read]:
        """Sends a request to worlds, all before the first answer is awaited, and returns what is read of the answers.

        Args:
            ask: Sends the request to a world.
            read: Reads its answer.
            indices: The worlds; None for all.

        Raises:
            EnvironmentFailed: A server refused, is gone, or broke its declaration.
        """
        indices = range(len(self._worlds)) if indices is None else indices
        for index in indices:
            ask(index, self._worlds[index])
        found = []
        for index in indices:
            self.active = index
            world = self._worlds[index]
            try:
                found.append(read(world, world.receive()))
            except WorldFault as fault:
                raise EnvironmentFailed(index, str(fault)) from None
        return found


def _tensors(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pack_tensor(value) for name, value in settings.items()}
