"""Settings of `rollcast act clients`."""

import re
from pathlib import Path
from typing import Final, Self

from pydantic import Field, field_validator, model_validator
from rollcast.addresses import is_loopback, split_address
from rollcast.limits import MAX_CHUNK_BYTES

from actor_client.settings.commands import CommonSettings, Names, Script

DEFAULT_LISTEN: Final = "127.0.0.1:50052"
LEAST_MESSAGE_BYTES: Final = 4096
MOST_MESSAGE_BYTES: Final = 2**30
MOST_CLIENTS: Final = 16384
_ORIGIN_FORM: Final = re.compile(r"null|[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._:\[\]-]+")


class ClientsSettings(CommonSettings):
    """Settings of `rollcast act clients`; the flags of the same names explain them."""

    listen: str = DEFAULT_LISTEN
    web: str | None = None
    allow_origin: Names = ()
    allow_host: Names = ()
    max_clients: int = Field(default=1024, ge=1, le=MOST_CLIENTS)
    max_message_bytes: int = Field(default=MAX_CHUNK_BYTES, ge=LEAST_MESSAGE_BYTES, le=MOST_MESSAGE_BYTES)
    window_ms: float = Field(default=2.0, ge=0, le=1000, allow_inf_nan=False)
    clients_auth: Path | None = None
    clients_tls_cert: Path | None = None
    clients_tls_key: Path | None = None
    opponent: Script | None = None

    @field_validator("listen", "web")
    @classmethod
    def _check_listen(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @field_validator("allow_origin")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if _ORIGIN_FORM.fullmatch(origin) is None:
                raise ValueError(
                    f"{origin!r} is no origin; write it as a browser does, such as https://play.example:8443"
                )
        return value

    @model_validator(mode="after")
    def _check_doors(self) -> Self:
        if (self.clients_tls_cert is None) is not (self.clients_tls_key is None):
            raise ValueError("clients_tls_cert and clients_tls_key belong together; give both, or neither")
        for address in filter(None, (self.listen, self.web)):
            is_open = not is_loopback(split_address(address)[0])
            if is_open and not self.insecure and (self.clients_auth is None or self.clients_tls_cert is None):
                lacks = "without a token" if self.clients_auth is None else "in plain text"
                raise ValueError(
                    f"{address} can be reached from other machines {lacks}; give --clients-auth and --clients-tls-cert, listen "
                    "on 127.0.0.1, or pass --insecure if you trust the network"
                )
        return self
