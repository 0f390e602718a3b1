"""Players that call at once, as fast as they can: every agent gets its action, and the books balance."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from communicator_objects.unity_message_pb2 import RESET

from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.harness import Served, ball, id_of, serving

PLAYERS, CALLS = 4, 150


def play(served: Served, worker: int) -> int:
    """One player: agents come, end and go at random; returns how many actions it got."""
    draw = random.Random(worker)
    actions = 0
    with served.player(worker) as player:
        player.begin()
        running: set[int] = set()
        for _ in range(CALLS):
            ended = {identity for identity in running if draw.random() < 0.1}
            asking = sorted(draw.sample(range(10), draw.randint(0, 10)))
            infos = [ball(identity, reward=1.0, done=True) for identity in sorted(ended)]
            infos += [ball(identity, reward=1.0) for identity in asking]
            answer = player.step(Ball=infos)
            running = (running - ended) | set(asking)
            if answer.command == RESET:
                running.clear()
                continue
            got = len(answer.agent_actions[id_of("Ball")].value) if asking else 0
            assert got == len(asking)
            assert bool(asking) == (id_of("Ball") in answer.agent_actions)
            actions += got
    return actions


def test_everyone_gets_what_it_asked_for() -> None:
    """Four players, new policies, holds and resets amid their calls."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner, PLAYERS))
        threads = stack.enter_context(ThreadPoolExecutor(PLAYERS))
        players = [threads.submit(play, served, worker) for worker in range(PLAYERS)]
        version = 0
        while not all(each.done() for each in players):
            served.publish(version=version)
            learner.hold(1, active=version % 2 == 0)
            if version % 5 == 0:
                served.reset()
            version += 1
            if version % 2 == 0:
                learner.hold(1, active=False)
        answered = sum(each.result() for each in players)
        assert served.gateway.counts.batch_agents.total >= answered
        assert served.books().produced > answered // 2
