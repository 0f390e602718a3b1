"""How far actors may run ahead of a trainer, in steps.

The service grants credit while fewer steps than `Pace.ahead_limit_steps` are unsettled (queued, staged, or in the update
buffer), and beside it an open allowance of agents * time_horizon a session, so that open segments can always be closed.
An update needs more than ``buffer_size`` steps; a limit above that can therefore never be reached without an update's
being ready, and neither side waits for the other.
"""

from __future__ import annotations

from learner.settings.trainer import TrainerSettings


def ahead_limit_steps(settings: TrainerSettings) -> int:
    """Returns how many steps may be unsettled.

    Threaded, actors fill the next buffer while the present one is trained. Not threaded, a hold stops them at each
    update; the quarter of a buffer beyond it keeps them from running out of credit while the last chunks of the present
    buffer are on their way.
    """
    buffer_size = settings.hyperparameters.buffer_size
    if settings.threaded:
        return 2 * buffer_size + 1
    return buffer_size + max(buffer_size // 4, settings.time_horizon) + 1
