"""Settings of `rollcast act conform`."""

from pydantic import Field

from actor_client.settings.commands import LearnerSettings


class ConformSettings(LearnerSettings):
    """Settings of `rollcast act conform`; the flags of the same names explain them."""

    behavior: str | None = Field(default=None, min_length=1)
