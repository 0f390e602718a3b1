"""The adapter of the worlds of a dm_env_rpc server."""

from collections.abc import Mapping

from rollcast.tls import IdentityError

from actor_client.adapters import BatchAdapter
from actor_client.dm_env_rpc.batch import WorldBatch
from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import UnknownEnvironment
from actor_client.envs.factory import DEFAULT_BEHAVIOR
from actor_client.exits import ExitCode
from actor_client.running import run_actor
from actor_client.settings.dm_env_rpc import DmEnvRpcSettings
from actor_client.settings.loading import load


def run_dm_env_rpc(flags: Mapping[str, object]) -> ExitCode:
    """Steps worlds for a learner; see `run_actor`."""
    return run_actor(DmEnvRpcAdapter, load(DmEnvRpcSettings, flags))


class DmEnvRpcAdapter(BatchAdapter):
    """Steps the worlds of a server.

    Args:
        settings: The user's settings.
    """

    simulator = "dm_env_rpc"

    def __init__(self, settings: DmEnvRpcSettings) -> None:
        super().__init__(settings, settings.server, DEFAULT_BEHAVIOR, settings.behavior)
        self._worlds = settings

    def make(self) -> EnvBatch:
        """Returns new worlds."""
        try:
            return WorldBatch(self._worlds)
        except IdentityError as error:  # a file that is read again at each attempt
            raise UnknownEnvironment(str(error)) from None
