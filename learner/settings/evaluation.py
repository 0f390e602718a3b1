"""``rollcast.evaluation``: measuring the policy now and then while it is trained."""

from __future__ import annotations

from pydantic import Field

from learner.settings.base import PositiveReal, PositiveWhole, SettingsModel

MAX_SILENT_SECONDS = 31 * 86400.0
MAX_EPISODES = 10**6
MAX_INTERVAL_STEPS = 2**53


class EvaluationSettings(SettingsModel):
    """Whole episodes that some actors play with one policy, and that nothing learns from."""

    interval_steps: PositiveWhole | None = Field(
        default=None, le=MAX_INTERVAL_STEPS, description="trainer steps between evaluations; null makes none"
    )
    episodes: PositiveWhole = Field(
        default=10, le=MAX_EPISODES, description="episodes of one evaluation, of each behavior"
    )
    deterministic: bool = Field(default=True, description="the mode of the distribution acts, not a draw")
    actors: PositiveWhole = Field(
        default=1, le=MAX_EPISODES, description="actors that play, in equal shares; the others train on"
    )
    max_silent_seconds: PositiveReal = Field(
        default=600.0,
        le=MAX_SILENT_SECONDS,
        description="an evaluation in which no episode ends for so long is given up; longer than any episode takes",
    )
