"""Settings of all tests."""

import asyncio
import gc
import inspect
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.e2e.preloaded import install
from tests.tools.suite.tiers import ROOT, mark_of_folder

# Tests run side by side on all cores: more threads of torch would only wait for each other. Set before torch is
# imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Commands that tests start are forks of processes that have loaded their modules.
install()

# A deadline would make a test depend on how busy the machine is.
settings.register_profile("rollcast", deadline=None)
settings.load_profile("rollcast")

# A shell that runs this in the background, or under nohup, has signals ignored, and processes inherit that. Those that the
# tests start have the signals of a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives tests the mark of their folder."""
    for item in items:
        mark = mark_of_folder(item.path.relative_to(ROOT).as_posix()) if item.path.is_relative_to(ROOT) else ""
        if mark and item.get_closest_marker("nightly") is None:
            item.add_marker(mark)


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """Leaves what was there before a file's tests out of garbage collections: torch alone is a third of a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Restores signal handlers that commands in this process replaced."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Restores the environment, which commands in this process and libraries change."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _captured_warnings() -> Iterator[None]:
    """Ends the capture of warnings by logs that a test configured; while one lasts, the next one captures nothing."""
    yield
    logging.captureWarnings(capture=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
