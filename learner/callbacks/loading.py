"""Makes the callbacks that a run file names."""

from __future__ import annotations

from collections.abc import Sequence

from learner.callbacks.base import METHODS
from learner.callbacks.runner import CallbackRunner
from learner.common import plugins
from learner.common.exits import ExitCode, UserError

ENTRY_POINTS = "rollcast.callbacks"
_SETTING = "rollcast.callbacks"


def load_callbacks(names: Sequence[str]) -> list[tuple[str, object]]:
    """Makes each callback: what its name stands for is called without arguments.

    Args:
        names: of entry points, or ``module:callable``.

    Raises:
        UserError: a name is unknown, or its callback cannot be made.
    """
    made: list[tuple[str, object]] = []
    for name in dict.fromkeys(names):
        factory = plugins.find(_SETTING, name, ENTRY_POINTS, {})
        callback = plugins.make(_SETTING, name, factory)
        if not plugins.make(_SETTING, name, lambda callback=callback: _heard(callback)):  # type: ignore[misc]
            raise UserError(
                ExitCode.RUN_FILE,
                f"{_SETTING} names {name!r}, but what it makes has none of {', '.join(METHODS.values())}",
            )
        made.append((name, callback))
    return made


def _heard(callback: object) -> list[str]:
    """Returns the methods that a callback has; looking for them may run code of the user's."""
    return [method for method in METHODS.values() if callable(getattr(callback, method, None))]


def start_callbacks(callbacks: Sequence[tuple[str, object]]) -> list[CallbackRunner]:
    """Gives each callback its thread."""
    return [CallbackRunner(name, callback) for name, callback in callbacks]
