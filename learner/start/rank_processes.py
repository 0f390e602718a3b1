"""Runs the trainers' side of a run in several processes, the ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from learner.link.channel import Channel, Link
from learner.link.codec import OF_TRAINERS
from learner.link.control import Failed
from learner.link.opening import Hello, Logged, NotOpened
from learner.link.split import Splitter
from learner.link.to_trainers import Actors, Declared, Experience, ToTrainers
from learner.link.turns import Follow, Over, Turn
from learner.link.wire import Wire
from learner.shared.exits import UserError
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.settings.load import LoadedRun
from learner.start.trainer_hosts import AwaitedTrainers
from learner.start.trainer_process import Connections, TrainerProcess, log_again
from learner.start.trainer_start import END_SECONDS, StartedTrainers


class RankRouter:
    """Passes the service's messages on to the ranks: to all what all need, and the rest to rank 0.

    Args:
        source: Messages of the service.
        ranks: Number of ranks.

    Attributes:
        channels: Messages to each rank.
    """

    def __init__(self, source: Channel[ToTrainers], ranks: int) -> None:
        self.channels: list[Channel[ToTrainers]] = [Channel(newest=frozenset({Actors})) for _ in range(ranks)]
        self._source = source
        self._splitter = Splitter(ranks)
        self._woken = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._pass_on, name="link-ranks", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()
        self._source.connect(self._woken.set)

    def close(self, seconds: float) -> None:
        """Passes on what waits, and ends the thread.

        Args:
            seconds: Longest wait for it.
        """
        self._is_closing = True
        self._woken.set()
        self._thread.join(seconds)

    def tell_all(self, message: Over) -> None:
        """Sends a message to all ranks, after `close`."""
        for channel in self.channels:
            channel.send(message)

    def follow(self, message: Turn | Follow) -> None:
        """Sends a message to all ranks but 0; from any thread."""
        for channel in self.channels[1:]:
            channel.send(message)

    def _pass_on(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            is_last = self._is_closing
            for message in self._source.receive():
                self._send(message)
            if is_last:
                return

    def _send(self, message: ToTrainers) -> None:
        """Sends a message, last to rank 0: a turn follows what rank 0 has, and the others must have it before."""
        if isinstance(message, Declared):
            self._splitter.note(message)
        ranks = len(self.channels) if type(message) in {Hello, Declared, Experience} else 1
        for rank in reversed(range(ranks)):
            part = self._splitter.part_of(message, rank) if isinstance(message, Experience) else message
            self.channels[rank].send(part)


class RankProcesses(TrainerProcess):
    """Runs the trainers' side in several processes, of which rank 0 conducts; see `TrainerProcess`."""

    def __init__(self, started: StartedTrainers | AwaitedTrainers, link: Link) -> None:
        self._wires = []  # until all are open
        super().__init__(started, link)

    def open(self, loaded: LoadedRun, folder: RunFolder, *, is_again: bool = False) -> bool:
        """Starts the run; see `TrainerProcess.open`."""
        has_begun = super().open(loaded, folder, is_again=is_again)
        if has_begun:
            self._router.follow(Follow(self.opened.generation, self.opened.seed))
        return has_begun

    def close(self, *, is_over: bool = False) -> None:
        """Sends what waits, and closes the connections, at which the processes end."""
        self._router.close(END_SECONDS)
        super().close(is_over=is_over)

    def _tell_all(self, message: Over) -> None:
        self._router.tell_all(message)

    def _error(self) -> UserError:
        """Ends the other ranks, which would wait for the one that has died; the launcher's signal does not end them."""
        for wire in self._wires:
            wire.cut()
        return super()._error()

    def _open_wires(self, link: Link, on_end: Callable[[str], None]) -> list[Wire] | None:
        found: Connections | None = self.started.connect()
        if found is None:
            return None
        self._router = RankRouter(link.to_trainers, len(found))
        link.to_front.divert(Turn, self._router.follow)
        wires = []
        for rank, (connection, ring) in enumerate(found):
            incoming: Channel[Any] = self._of_follower(rank, link) if rank else link.to_front
            wires.append(Wire(connection, self._router.channels[rank], incoming, on_end, ring, kinds=OF_TRAINERS))
        self._router.start()
        return wires

    def _of_follower(self, rank: int, link: Link) -> Channel[Any]:
        """Returns the channel of a rank other than 0, which only logs and fails."""
        channel: Channel[Any] = Channel()
        channel.divert(Logged, lambda line: log_again(replace(line, fields={**line.fields, "rank": rank})))
        channel.divert(Failed, link.to_front.send)
        channel.divert(NotOpened, link.to_front.send)
        return channel
