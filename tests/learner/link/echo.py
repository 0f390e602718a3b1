"""Dials a front and sends back the sums of the experience that it gets: a thread or a process of tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from learner.link.channel import Link
from learner.link.control import Answer, Request, StopTurns
from learner.link.local import dial, inherited_ring
from learner.link.to_trainers import Experience
from learner.link.wire import Wire


def main(environ: Mapping[str, str] = os.environ) -> None:
    """Answers until the front closes or sends `StopTurns`."""
    link, ended, woken = Link(), threading.Event(), threading.Event()

    def end(fault: str) -> None:
        del fault
        ended.set()
        woken.set()

    wire = Wire(dial(environ), link.to_front, link.to_trainers, end, inherited_ring(environ))
    link.to_trainers.connect(woken.set)
    wire.start()
    while not ended.is_set():
        woken.wait()
        woken.clear()
        for message in link.to_trainers.receive():
            match message:
                case Experience():
                    link.to_front.send(Answer(message.sequence, str(message.chunk.columns["reward"].sum())))
                case Request():
                    link.to_front.send(Answer(message.number))
                case StopTurns():
                    wire.close(5.0)
                    return


if __name__ == "__main__":
    main()
