"""Settings of `rollcast act dm-env-rpc`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import NoDecode
from rollcast.addresses import is_loopback, split_address
from rollcast.tls import ClientSecurity, IdentityError

from actor_client.settings.commands import Names, SteppingSettings, read_json


def read_settings(value: object) -> object:
    """Returns the settings of a world by name, from `KEY=VALUE` of flags, or from a variable's JSON object.

    A value is read as JSON; what is not JSON is a text.

    Raises:
        ValueError: A text has no `=`, or the variable is no JSON object.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return read_json(value)
    found: dict[str, Any] = {}
    for text in value:
        name, separator, setting = str(text).partition("=")
        if not separator or not name:
            raise ValueError(f"{text!r} has no name and value; write KEY=VALUE, as in level=3")
        try:
            found[name] = json.loads(setting)
        except ValueError:
            found[name] = setting
    return found


def check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings if each is a number, a truth value, a text, or a list of one of them.

    Raises:
        ValueError: One is another value.
    """
    for name, value in settings.items():
        parts = value if isinstance(value, list) and value else [value]
        kinds = {bool if isinstance(part, bool) else str if isinstance(part, str) else float for part in parts}
        is_plain = all(isinstance(part, bool | int | float | str) for part in parts)
        is_long = any(isinstance(part, int) and not -(2**63) <= part < 2**63 for part in parts)
        if len(kinds) > 1 or not is_plain or is_long:
            raise ValueError(
                f"{name} is {json.dumps(value)[:80]}; a number of 64 bits, true or false, a text, or a list of one of them is "
                "needed"
            )
    return settings


WorldSettings = Annotated[
    dict[str, Any], NoDecode, BeforeValidator(read_settings), Field(default_factory=dict, max_length=1024)
]
"""Settings of a world, by name."""


class DmEnvRpcSettings(SteppingSettings):
    """Settings of `rollcast act dm-env-rpc`; the flags of the same names explain them."""

    server: str
    world: str | None = None
    create: WorldSettings
    join: WorldSettings
    seed_setting: str | None = Field(default=None, min_length=1)
    reward: str = Field(default="reward", min_length=1)
    observe: Names = ()
    ignore: Names = ()
    behavior: str | None = Field(default=None, min_length=1)
    env_tls_ca: Path | None = None
    env_token_file: Path | None = None

    @field_validator("server")
    @classmethod
    def _check_server(cls, value: str) -> str:
        split_address(value, least_port=1)
        return value

    @field_validator("create", "join")
    @classmethod
    def _check_world(cls, value: dict[str, Any]) -> dict[str, Any]:
        return check_settings(value)

    @property
    def server_security(self) -> ClientSecurity:
        """Certificate and token for the connection to the server of worlds."""
        return ClientSecurity(ca=self.env_tls_ca, token_file=self.env_token_file)

    @model_validator(mode="after")
    def _check_server_security(self) -> Self:
        if self.world is not None and self.create:
            raise ValueError(
                f"world {self.world!r} exists, and create makes another one; leave out --world or --create"
            )
        host, _ = split_address(self.server)
        if not self.insecure and self.env_tls_ca is None and not is_loopback(host):
            raise ValueError(
                f"the server {self.server} is another machine, and the connection would be in plain text; give "
                "--env-tls-ca, or pass --insecure if you trust the network between them"
            )
        try:
            self.server_security.check()
        except IdentityError as error:
            raise ValueError(str(error)) from None
        return self
