"""A game that speaks the protocol of the Godot RL Agents plug-in as its `sync.gd` does; `make_game` makes a build of it.

python tests/tools/godot_game.py --port=11008 --env_seed=1 --task=cartpole --agents=4
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT = 12 * 2 * math.pi / 360


class CartPole:
    """An agent that balances a pole, with the constants and the 500-step limit of Gymnasium's CartPole-v1."""

    policy = "shared_policy"
    observation_space: dict[str, Any] = {"obs": {"size": [4], "space": "box"}}
    action_space: dict[str, Any] = {"push": {"size": 2, "action_type": "discrete"}}

    def __init__(self, numbers: random.Random, place: int) -> None:
        self.numbers, self.place = numbers, place
        self.done, self.reward, self.steps = False, 0.0, 0
        self.reset()

    def reset(self) -> None:
        """Begins an episode."""
        self.state = [self.numbers.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0

    def obs(self) -> dict[str, Any]:
        """Returns what the agent sees."""
        return {"obs": self.state}

    def info(self) -> dict[str, Any]:
        """Returns what the plug-in adds."""
        return {}

    def step(self, action: dict[str, Any]) -> None:
        """Takes an action, and begins the next episode at once if this one ends."""
        _, x_dot, theta, theta_dot = self.state
        force = 10.0 if action["push"] else -10.0
        cos, sin = math.cos(theta), math.sin(theta)
        push = (force + 0.05 * theta_dot**2 * sin) / 1.1
        theta_acc = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        x_acc = push - 0.05 * theta_acc * cos / 1.1
        change = (x_dot, x_acc, theta_dot, theta_acc)
        self.state = [value + 0.02 * each for value, each in zip(self.state, change, strict=True)]
        self.reward += 1.0
        self.steps += 1
        if abs(self.state[0]) > 2.4 or abs(self.state[2]) > LIMIT or self.steps >= 500:
            self.done = True
            self.reset()


class Mixed(CartPole):
    """An agent with a picture, a vector, a category, and both kinds of actions, whose episodes last five steps."""

    observation_space: dict[str, Any] = {
        "camera_2d": {"size": [20, 24, 3], "space": "box"},
        "obs": {"size": [2], "space": "box"},
        "room": {"size": 3, "space": "discrete"},
    }
    action_space: dict[str, Any] = {
        "steer": {"size": 2, "action_type": "continuous"},
        "jump": {"size": 2, "action_type": "discrete"},
        "gear": {"size": 4, "action_type": "discrete"},
        "gas": {"size": 1, "action_type": "continuous"},
    }

    def obs(self) -> dict[str, Any]:
        """Returns what the agent sees."""
        picture = bytes((self.steps * 10 + place) % 256 for place in range(20 * 24 * 3))
        return {"camera_2d": picture.hex(), "obs": [float(self.place), float(self.steps)], "room": self.steps % 3}

    def step(self, action: dict[str, Any]) -> None:
        """Takes an action, after checking its form."""
        assert list(action) == ["steer", "jump", "gear", "gas"], action
        assert all(-1.0 <= axis <= 1.0 for axis in (*action["steer"], *action["gas"])), action
        assert (len(action["steer"]), len(action["gas"])) == (2, 1)
        assert action["jump"] in {0, 1}
        assert action["gear"] in {0, 1, 2, 3}
        self.reward += action["gear"] + action["gas"][0]
        self.steps += 1
        if self.steps == 5:
            self.done = True
            self.reset()


class Team(CartPole):
    """Agents of two policies: those in odd places are of `chaser`, the others of `runner`."""

    def __init__(self, numbers: random.Random, place: int) -> None:
        super().__init__(numbers, place)
        self.policy = ("runner", "chaser")[place % 2]


TASKS = {"cartpole": CartPole, "mixed": Mixed, "team": Team}


class Game:
    """A game: agents, and the connection to their trainer.

    Args:
        words: Its command line.
    """

    def __init__(self, words: Sequence[str]) -> None:
        given = dict(word.lstrip("-").partition("=")[::2] for word in words)
        numbers = random.Random(int(given.get("env_seed", "1")))
        task = TASKS[given.get("task", "cartpole")]
        self.agents = [task(numbers, place) for place in range(int(given.get("agents", "1")))]
        self.dies_at = int(given.get("dies_at", "0"))
        self.steps = 0
        self.connection = socket.create_connection(("127.0.0.1", int(given.get("port", "11008"))))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> int:
        """Plays until it is told to end, or its trainer leaves; returns the exit code."""
        with self.connection, contextlib.suppress(ConnectionError):
            return self.play()
        return 0

    def play(self) -> int:
        """Plays until it is told to end; returns the exit code."""
        if self.read()["type"] != "handshake" or self.read()["type"] != "env_info":
            return 3
        self.write(
            type="env_info",
            observation_space=[agent.observation_space for agent in self.agents],
            action_space=[agent.action_space for agent in self.agents],
            n_agents=len(self.agents),
            agent_policy_names=[agent.policy for agent in self.agents],
        )
        while (message := self.read())["type"] != "close":
            if message["type"] == "reset":
                for agent in self.agents:
                    agent.reset()
                self.write(type="reset", obs=[agent.obs() for agent in self.agents], info=[{}] * len(self.agents))
            else:
                self.step(message["action"])
        return 0

    def step(self, actions: list[dict[str, Any]]) -> None:
        """Lets all agents act, and sends what became of it."""
        self.steps += 1
        if self.steps == self.dies_at:
            sys.stderr.write("out of lives\n")
            sys.exit(7)
        for agent, action in zip(self.agents, actions, strict=True):
            agent.step(action)
        done = [agent.done for agent in self.agents]
        reward = [agent.reward for agent in self.agents]
        for agent in self.agents:
            agent.done, agent.reward = False, 0.0
        infos = [agent.info() for agent in self.agents]
        self.write(type="step", obs=[agent.obs() for agent in self.agents], reward=reward, done=done, info=infos)

    def read(self) -> dict[str, Any]:
        """Returns the next message; a trainer that has left sends `close`."""
        body = self.take(int.from_bytes(self.take(4), "little"))
        message: dict[str, Any] = json.loads(body) if body else {"type": "close"}
        return message

    def take(self, count: int) -> bytes:
        """Returns so many bytes, or none at the end."""
        found = b""
        while len(found) < count:
            data = self.connection.recv(count - len(found))
            if not data:
                return b""
            found += data
        return found

    def write(self, **message: Any) -> None:
        """Sends a message."""
        body = json.dumps(message).encode()
        self.connection.sendall(len(body).to_bytes(4, "little") + body)


def make_game(folder: Path, *arguments: str, name: str = "Game") -> Path:
    """Makes a build and returns its path.

    Args:
        folder: Gets the build.
        arguments: Given to the game before those of the trainer's side.
        name: Of the build.
    """
    path = folder / f"{name}.x86_64"
    command = shlex.join([sys.executable, str(Path(__file__).resolve()), *arguments])
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    sys.exit(Game(sys.argv[1:]).run())
