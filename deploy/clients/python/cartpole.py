"""Plays CartPole for a Rollcast gateway, with grpcio and the generated messages alone.

    python cartpole.py 127.0.0.1:50052 --carts 8

Copy this file and replace `Cart`, `BEHAVIOR` and the names of this example. Everything a client does is in `play`.
"""

from __future__ import annotations

import argparse
import math
import os
import queue
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import grpc
from rollcast.v1 import client_pb2, client_pb2_grpc, spec_pb2, tensor_pb2

BEHAVIOR = spec_pb2.BehaviorSpec(
    name="CartPole",
    observations=[
        spec_pb2.ObservationSpec(
            name="obs", dtype=tensor_pb2.DTYPE_FLOAT32, shape=[4], kind=spec_pb2.OBSERVATION_KIND_VECTOR
        )
    ],
    action=spec_pb2.ActionSpec(discrete_branches=[2]),
)
RETRY_SECONDS = 1.0
FATAL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)
"""Codes of errors that come back however often the client connects."""


class Cart:
    """A cart with a pole, with the equations and constants of Gymnasium's CartPole-v1."""

    GRAVITY, CART_MASS, POLE_MASS, FORCE, TICK_SECONDS = 9.8, 1.0, 0.1, 10.0, 0.02
    POSITION_LIMIT, ANGLE_LIMIT, STEP_LIMIT = 2.4, math.radians(12), 500

    def begin(self, draws: random.Random, parameters: Mapping[str, float]) -> None:
        """Starts an episode with the pole almost upright.

        Args:
            draws: The random numbers, which the gateway seeds.
            parameters: The environment parameters of the run file; `half_length` is that of the pole, in m.
        """
        self.half_length = parameters.get("half_length", 0.5)
        self.state = [draws.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0

    def push(self, to_the_right: bool) -> client_pb2.AgentState.ValueType:
        """Takes one step of Euler's method, and returns whether the episode continues."""
        x, x_dot, angle, angle_dot = self.state
        sin, cos = math.sin(angle), math.cos(angle)
        mass, moment = self.CART_MASS + self.POLE_MASS, self.POLE_MASS * self.half_length
        force = self.FORCE if to_the_right else -self.FORCE
        pushed = (force + moment * angle_dot**2 * sin) / mass
        angle_acc = (self.GRAVITY * sin - cos * pushed) / (self.half_length * (4 / 3 - self.POLE_MASS * cos**2 / mass))
        x_acc = pushed - moment * angle_acc * cos / mass
        tick = self.TICK_SECONDS
        self.state = [x + tick * x_dot, x_dot + tick * x_acc, angle + tick * angle_dot, angle_dot + tick * angle_acc]
        self.steps += 1
        if abs(self.state[0]) > self.POSITION_LIMIT or abs(self.state[2]) > self.ANGLE_LIMIT:
            return client_pb2.AGENT_STATE_ENDED
        if self.steps >= self.STEP_LIMIT:
            return client_pb2.AGENT_STATE_INTERRUPTED
        return client_pb2.AGENT_STATE_UNSPECIFIED


def play(channel: grpc.Channel, token: str, carts: list[Cart]) -> tuple[str, int]:
    """Plays until the gateway ends it; returns the reason that it gives, and the number of steps.

    Raises:
        grpc.RpcError: The stream broke.
    """
    outbox: queue.SimpleQueue[client_pb2.PlayRequest | None] = queue.SimpleQueue()
    answers = client_pb2_grpc.ClientServiceStub(channel).Play(iter(outbox.get, None))
    try:
        outbox.put(client_pb2.PlayRequest(hello=client_pb2.Hello(name="python", token=token, behaviors=[BEHAVIOR])))
        answer = next(answers)
        draws = random.Random(answer.environment.seed)
        parameters: dict[str, float] = {}
        is_new, count = True, 0
        while not answer.goodbye:
            if answer.HasField("environment"):
                parameters = dict(answer.environment.parameters)
            steps = client_pb2.AgentSteps(behavior=BEHAVIOR.name)
            if is_new or answer.reset:  # the gateway wants new episodes of all agents
                for number, cart in enumerate(carts):
                    cart.begin(draws, parameters)
                    report(steps, number, cart)
            for actions in answer.actions:
                for number, action in zip(actions.agents, actions.discrete, strict=True):
                    cart = carts[number]
                    state = cart.push(action == 1)
                    count += 1
                    report(steps, number, cart, reward=1.0, state=state)
                    if state != client_pb2.AGENT_STATE_UNSPECIFIED:  # the next episode begins in the same message
                        cart.begin(draws, parameters)
                        report(steps, number, cart)
            is_new = False
            outbox.put(client_pb2.PlayRequest(steps=[steps]))
            answer = next(answers)
        return answer.goodbye, count
    finally:
        outbox.put(None)  # closes the stream


def report(
    steps: client_pb2.AgentSteps,
    number: int,
    cart: Cart,
    reward: float = 0.0,
    state: client_pb2.AgentState.ValueType = client_pb2.AGENT_STATE_UNSPECIFIED,
) -> None:
    """Appends what a cart observes, and the reward of its last step."""
    steps.agents.append(number)
    steps.values.extend(cart.state)
    steps.rewards.append(reward)
    steps.states.append(state)


def connected(address: str) -> grpc.Channel:
    """Returns a channel to the gateway, with TLS if ROLLCAST_TLS_CA names the file with the gateway's authority."""
    if authority := os.environ.get("ROLLCAST_TLS_CA"):
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(Path(authority).read_bytes()))
    return grpc.insecure_channel(address)


def main() -> int:
    """Plays until the run ends; connects again while the gateway is away."""
    parser = argparse.ArgumentParser(description="Plays CartPole for a Rollcast gateway.")
    parser.add_argument("address", help="of `rollcast act clients --listen`, as 127.0.0.1:50052")
    parser.add_argument("--carts", type=int, default=8, help="carts in one message (default: 8)")
    options = parser.parse_args()
    token = os.environ.get("ROLLCAST_TOKEN", "")
    while True:
        try:
            with connected(options.address) as channel:
                reason, steps = play(channel, token, [Cart() for _ in range(options.carts)])
            print(f"goodbye after {steps} steps: {reason}", flush=True)
            return 0 if steps else 1  # without a step it was refused
        except grpc.RpcError as error:
            print(f"{options.address}: {error.code().name}: {error.details()}", file=sys.stderr, flush=True)
            if error.code() in FATAL:
                return 1
        except StopIteration:
            print(f"{options.address}: the gateway closed the stream", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            return 130
        time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
