"""`python -m rollcast.watched MODULE ...` runs a module as a program that ends with the process that started it."""

import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

_END_SECONDS: Final = 20.0
"""Seconds that the program has to end by itself."""


def run_until_input_ends(module: str) -> None:
    """Runs a module as a program, which gets SIGTERM when its standard input ends.

    The input is a pipe from the process that started it. The pipe ends with that process, however it ends, on every system, whereas
    a signal from the system ends with the thread that started the program.

    Args:
        module: The module; its arguments are those of this process.
    """
    threading.Thread(target=_end_after_input, name="parent-watch", daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_after_input() -> None:
    try:
        while os.read(0, 4096):
            continue
    except OSError:  # closed by the program: nobody watches it any more
        return
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    del sys.argv[0]
    run_until_input_ends(sys.argv[0])
