"""Continues as another program, whose cyclic garbage is collected soon: ``python -m tests.e2e.collecting -m actor_client …``.

What a program still holds then shows in its memory, and not when it last happened to look for cycles.
"""

import gc
import runpy
import sys
import threading
import time

SECONDS = 0.5
"""From one full collection to the next. Python's own waits until a quarter of all objects is new."""


def _collect() -> None:
    while True:
        time.sleep(SECONDS)
        gc.collect()


def main() -> None:
    """Collects in a thread, and runs the module that the arguments name."""
    threading.Thread(target=_collect, daemon=True).start()
    _, _, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
