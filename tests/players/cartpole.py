"""CartPole (Barto, Sutton and Anderson 1983) with the constants and the 500-step limit of Gymnasium's CartPole-v1."""

from __future__ import annotations

from typing import Final

import numpy as np
from communicator_objects import observation_pb2, unity_message_pb2

from tests.players.task import EpisodeSink, Floats, brain, discrete_actions, nobody

BEHAVIOR: Final = "CartPole"
STEP_LIMIT: Final = 500
GRAVITY, MASS_CART, MASS_POLE, HALF_LENGTH, FORCE, TAU_SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
ANGLE_LIMIT, POSITION_LIMIT = 12 * 2 * np.pi / 360, 2.4


def advance(state: Floats, pushes_right: Floats) -> Floats:
    """Returns the states after one step of Euler's method.

    Args:
        state: [N, 4]: position, velocity, angle, angular velocity.
        pushes_right: [N], 1 to push the cart to the right and 0 to push it to the left.
    """
    x, x_dot, theta, theta_dot = state.T
    force = np.where(pushes_right > 0, FORCE, -FORCE)
    cos, sin = np.cos(theta), np.sin(theta)
    total, pole_moment = MASS_CART + MASS_POLE, MASS_POLE * HALF_LENGTH
    push = (force + pole_moment * theta_dot**2 * sin) / total
    theta_acc = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - MASS_POLE * cos**2 / total))
    x_acc = push - pole_moment * theta_acc * cos / total
    return np.stack(
        [
            x + TAU_SECONDS * x_dot,
            x_dot + TAU_SECONDS * x_acc,
            theta + TAU_SECONDS * theta_dot,
            theta_dot + TAU_SECONDS * theta_acc,
        ],
        axis=1,
    )


class CartPole:
    """Agents that balance a pole each; two choices; a reward of 1 a step.

    Args:
        agents: how many.
        on_episode: takes the results.
        behavior_id: of the agents.
    """

    def __init__(
        self, agents: int = 8, on_episode: EpisodeSink = nobody, behavior_id: str = f"{BEHAVIOR}?team=0"
    ) -> None:
        self.decisions = 0
        self._agents = agents
        self._on_episode = on_episode
        self._id = behavior_id
        self._told = False
        self._rng = np.random.default_rng(0)
        self._state = np.zeros((agents, 4))
        self._lengths = np.zeros(agents, np.int64)
        self._ended: list[tuple[int, Floats, bool]] = []
        self._fresh = np.ones(agents, bool)

    def reset(self, seed: int | None = None) -> None:
        """Begins all episodes anew."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._state = self._rng.uniform(-0.05, 0.05, (self._agents, 4))
        self._lengths[:] = 0
        self._fresh[:] = True
        self._ended.clear()

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes the agents that ended, then all, which ask."""
        if not self._told:
            output.rl_initialization_output.brain_parameters.append(brain(self._id, branches=(2,)))
            self._told = True
        infos = output.rl_output.agentInfos[self._id].value
        for agent, state, interrupted in self._ended:
            ended = infos.add(id=agent, reward=1.0, done=True, max_step_reached=interrupted)
            _observe(ended.observations.add(), state)
        self._ended.clear()
        for agent, (state, fresh) in enumerate(zip(self._state, self._fresh, strict=True)):
            asking = infos.add(id=agent, reward=0.0 if fresh else 1.0)
            _observe(asking.observations.add(), state)

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Pushes each cart once."""
        choices = discrete_actions(reply, self._id, self._agents, (2,))[:, 0]
        self._state = advance(self._state, choices.astype(np.float64))
        self._lengths += 1
        self.decisions += self._agents
        self._fresh[:] = False
        fell = (np.abs(self._state[:, 0]) > POSITION_LIMIT) | (np.abs(self._state[:, 2]) > ANGLE_LIMIT)
        for agent in np.flatnonzero(fell | (self._lengths >= STEP_LIMIT)):
            self._ended.append((int(agent), self._state[agent].copy(), not fell[agent]))
            length = int(self._lengths[agent])
            self._on_episode(self._id, self.decisions, float(length), length)
            self._state[agent] = self._rng.uniform(-0.05, 0.05, 4)
            self._lengths[agent] = 0
            self._fresh[agent] = True


def _observe(observation: observation_pb2.ObservationProto, state: Floats) -> None:
    observation.shape.append(4)
    observation.dimension_properties.append(1)
    observation.float_data.data.extend(state.tolist())
    observation.name = "VectorSensor_size4"
