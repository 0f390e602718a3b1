"""Messages of environments, which the rollout answers with actions."""

from collections.abc import Sequence
from typing import Any

from actor_client.pettingzoo.batches import Part
from actor_client.pettingzoo.cast import Form
from actor_client.pettingzoo.environment import AgentEnvironment
from actor_client.policy.actions import Actions


class Exchange:
    """One message of an environment, answered once all its asking agents have actions.

    Args:
        environment: The environment.
        parts: The agents of the message.

    Attributes:
        simulator: The environment.
    """

    __slots__ = ("_actions", "_asking", "simulator")

    def __init__(self, environment: AgentEnvironment, parts: Sequence[Part]) -> None:
        self.simulator = environment
        self._asking: dict[str, tuple[Form, list[str]]] = {
            part.form.behavior_id: (part.form, part.names) for part in parts if part.names
        }
        self._actions: dict[str, Any] = {}

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior id; returns whether all actions are present."""
        form, names = self._asking.pop(behavior_id)
        chosen = form.actions.singles(actions.environment_continuous, actions.discrete)
        self._actions.update(zip(names, chosen, strict=True))
        return not self._asking

    def answer(self) -> None:
        """Lets the environment take these actions."""
        self.simulator.act(self._actions)

    def answer_reset(self) -> None:
        """Resets the environment; actions chosen in the meantime are dropped."""
        self.simulator.restart()
