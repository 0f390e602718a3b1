"""What `rollcast-actor gym` can be told beside what all commands can."""

import json
from typing import Any, Final, Self

from pydantic import Field, field_validator, model_validator

from actor_client.settings.common import CommonSettings

MAX_ENVS: Final = 65536


class GymSettings(CommonSettings):
    """Settings of `rollcast-actor gym`; the flags of the same names say what each one does."""

    env: str = Field(min_length=1)
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    num_envs: int = Field(default=1, ge=1, le=MAX_ENVS)
    vector: bool = False
    behavior: str | None = Field(default=None, min_length=1)
    max_env_failures: int = Field(default=3, ge=1)
    policy: str | None = Field(default=None, min_length=1)
    seed: int = Field(default=0, ge=0, lt=2**31)

    @field_validator("env_kwargs", mode="before")
    @classmethod
    def _read_json(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            found = json.loads(value)
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise ValueError('is no JSON object; write one as in {"render_mode": "rgb_array"}')  # noqa: TRY004 - pydantic
        return found

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        if self.policy is not None and self.record is None:
            raise ValueError(f"policy {self.policy} acts without a learner, for a recording: add --record FILE.demo")
        if self.policy is None and "seed" in self.model_fields_set:
            raise ValueError("seed goes with policy; where there is a learner, the seeds are its run's")
        return self
