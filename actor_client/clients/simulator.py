"""One client as the gateway's loop sees it, and its messages on their way to an answer."""

from asyncio import Future
from collections.abc import Callable, Mapping

from rollcast.specs import BehaviorSpec
from rollcast.v1 import client_pb2, policy_pb2

from actor_client.clients.steps import ClientReader, Part
from actor_client.envs.parameters import EnvironmentParameters
from actor_client.policy.actions import Actions


class ClientSimulator:
    """One client with a seat; a `Simulator` of the rollout.

    Args:
        worker: Number of its seat, which later clients get again.
        name: Its readable name.
        specs: The behaviors that it declared, by name.
        seed: Seed of its random numbers.
        assignment: The learner's present assignment.

    Attributes:
        worker: Number of its seat.
        name: Its readable name.
        is_running: Always true: its agents may report from its first message on.
        reset_due: Its next message is answered with a reset.
        revision: Revision of the environment parameters that it was told, for episodes that begin now.
        reader: Reads its messages.
    """

    def __init__(
        self,
        worker: int,
        name: str,
        specs: Mapping[str, BehaviorSpec],
        seed: int,
        assignment: policy_pb2.Assignment,
    ) -> None:
        self.worker = worker
        self.name = name
        self.is_running = True
        self.reset_due = False
        self.revision = 0
        self.reader = ClientReader(specs)
        self._seed = seed
        self._parameters = EnvironmentParameters(1)
        self._parameters.assign(assignment)
        self._parameters.seed([seed])
        self._is_due = True

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Takes parameters that have changed, for the next answer, and a reset if they ask for one."""
        self.reset_due |= assignment.reset == policy_pb2.RESET_MODE_NOW
        if assignment.settings_revision != self._parameters.revision:
            self._parameters.assign(assignment)
            self._is_due = True

    def ended(self) -> None:
        """Notes that an episode has ended: parameters that vary are drawn for the next one."""
        self._is_due |= self._parameters.varies

    def complete(self, answer: client_pb2.PlayResponse) -> client_pb2.PlayResponse:
        """Adds what the client is to be told of its environment, if anything is new."""
        if self._is_due:
            self._is_due = False
            self.revision = self._parameters.revision
            environment = answer.environment
            environment.seed, environment.settings_revision = self._seed, self.revision
            environment.parameters.update(self._parameters.draw(0))
        return answer


class ClientExchange:
    """One message of a client that is answered once all its agents have actions.

    Args:
        simulator: The client.
        parts: The agents of the message.
        future: Gets the answer; done already if the client has gone.
        on_answer: Called with the client once it has its answer.

    Attributes:
        simulator: The client.
    """

    __slots__ = ("_answer", "_future", "_on_answer", "_waiting", "simulator")

    def __init__(
        self,
        simulator: ClientSimulator,
        parts: list[Part],
        future: "Future[client_pb2.PlayResponse]",
        on_answer: Callable[[ClientSimulator], None],
    ) -> None:
        self.simulator = simulator
        self._future = future
        self._on_answer = on_answer
        self._answer = client_pb2.PlayResponse()
        self._waiting = {
            part.form.behavior_id: self._answer.actions.add(
                behavior=part.form.behavior_id, agents=part.asking.ids.tolist()
            )
            for part in parts
            if len(part.asking.ids)
        }

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior id; returns whether all actions are present."""
        found = self._waiting.pop(behavior_id)
        if actions.environment_continuous is not None:
            found.continuous.extend(actions.environment_continuous.ravel().tolist())
        if actions.discrete is not None:
            found.discrete.extend(actions.discrete.ravel().tolist())
        return not self._waiting

    def answer(self) -> None:
        """Lets the client continue with these actions."""
        self._send(self._answer)

    def answer_reset(self) -> None:
        """Resets the client; actions chosen in the meantime are dropped."""
        self.simulator.reset_due = False
        self.simulator.ended()
        self._send(client_pb2.PlayResponse(reset=True))

    def _send(self, answer: client_pb2.PlayResponse) -> None:
        if not self._future.done():  # its connection ended in this moment
            self._future.set_result(self.simulator.complete(answer))
            self._on_answer(self.simulator)
