"""The loop of a rank other than 0: it does what rank 0 does, with its own part of the experience."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable

from learner.link.channel import Link
from learner.link.to_trainers import Declared, Experience
from learner.link.turns import Turn, TurnKind
from learner.shared.settings.trainer import TrainerSettings
from learner.training.trainers.base import Trainer
from learner.training.trainers.outcome_report import ExperienceQueue, OutcomeReport

MakeQueue = Callable[[Declared, OutcomeReport], ExperienceQueue]


class Follower:
    """Builds a trainer for each declared behavior, and gives it the turns that rank 0 took.

    Args:
        link: Link to the service.
        build: Builds the trainer of a behavior with its queue.
        make_queue: Creates the queue of a behavior.
        release: Passes the round of a queue to its trainer; receives the queue and the sessions of the round.
    """

    def __init__(
        self,
        link: Link,
        build: Callable[[Declared, ExperienceQueue], Trainer],
        make_queue: MakeQueue,
        release: Callable[[ExperienceQueue, frozenset[str]], object],
    ) -> None:
        self._link = link
        self._build = build
        self._make_queue = make_queue
        self._release = release
        self._woken = threading.Event()
        self._turns = 0
        self._trainers: dict[int, Trainer] = {}
        self._waiting: dict[int, deque[Experience]] = {}
        link.to_trainers.connect(self._woken.set)

    def run(self) -> None:
        """Takes turns until an error; the process ends with its connection to the service."""
        while True:
            self._woken.wait()
            self._woken.clear()
            for message in self._link.to_trainers.receive():
                match message:
                    case Declared():
                        self._add(message)
                    case Experience():
                        if not self._trainers[message.behavior].queue.is_closed:
                            self._waiting[message.behavior].append(message)
                    case Turn():
                        self.play(message)

    def play(self, turn: Turn) -> None:
        """Does what rank 0 does.

        Raises:
            RuntimeError: A turn is missing.
        """
        self._turns += 1
        if turn.number != self._turns:
            raise RuntimeError(f"turn {turn.number} came in the place of turn {self._turns}")
        trainer = self._trainers[turn.behavior]
        match turn.kind:
            case TurnKind.LOAD:
                trainer.share_state()
                trainer.start()
            case TurnKind.COLLECT:
                self._take(turn, trainer)
                trainer.collect()
            case TurnKind.RELEASE:
                self._take(turn, trainer)
                self._release(trainer.queue, turn.players)
            case TurnKind.UPDATE:
                trainer.update()
            case TurnKind.SET:
                trainer.change_settings(TrainerSettings.model_validate(json.loads(turn.settings)))
            case TurnKind.FINISH:
                trainer.finish()
                trainer.queue.close()
                self._waiting[turn.behavior].clear()

    def _add(self, declared: Declared) -> None:
        queue = self._make_queue(declared, OutcomeReport(declared.index, lambda _: None))
        self._trainers[declared.index] = self._build(declared, queue)
        self._waiting[declared.index] = deque()

    def _take(self, turn: Turn, trainer: Trainer) -> None:
        """Puts the experience that rank 0 has taken into the trainer's queue."""
        waiting = self._waiting[turn.behavior]
        while waiting and waiting[0].sequence <= turn.through:
            trainer.queue.put(waiting.popleft())
