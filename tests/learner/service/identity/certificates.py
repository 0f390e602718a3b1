"""Makes certificates and tokens for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rollcast.auth import Principal, Role, TokenRow, make_token, token_hash
from rollcast.tls import ClientSecurity

from learner.service.identity.authority import CERTIFICATE_DAYS, Authority, save_server
from learner.shared.settings.addresses import AUTHORITY, SERVER_CERT, SERVER_KEY, TOKENS

HOSTS = ("localhost", "127.0.0.1")


@dataclass
class Folder:
    """A folder as `certs init` makes it, and the tokens in it."""

    path: Path
    authority: Authority
    tokens: dict[str, str]

    @classmethod
    def make(cls, path: Path, **roles: Role) -> Folder:
        """Returns a folder with one token for each principal."""
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path, Authority.make("test"), {})
        folder.authority.save(path)
        save_server(path, folder.authority, HOSTS)
        for name in roles:
            folder.tokens[name] = make_token()
            (path / f"{name}.token").write_text(folder.tokens[name] + "\n")
        folder.write_tokens(**roles)
        return folder

    def write_tokens(self, **roles: Role) -> None:
        """Replaces the token file."""
        rows = [TokenRow(Principal(name, role), token_hash(self.tokens[name])) for name, role in roles.items()]
        (self.path / TOKENS).write_text("".join(f"{row.line()}\n" for row in rows))

    def renew(self, days: float = CERTIFICATE_DAYS) -> None:
        """Replaces the learner's certificate by one that is valid for so many days."""
        save_server(self.path, self.authority, HOSTS, days=days)

    def client(self, token: str | None = None, certificate: Principal | None = None) -> ClientSecurity:
        """Returns how a client connects."""
        cert = key = None
        if certificate is not None:
            cert, key = self.path / f"{certificate.name}.pem", self.path / f"{certificate.name}.key"
            pem, private = self.authority.client(certificate)
            cert.write_bytes(pem)
            key.write_bytes(private)
        return ClientSecurity(self.ca, cert, key, None if token is None else self.path / f"{token}.token")

    @property
    def ca(self) -> Path:
        """The authority."""
        return self.path / AUTHORITY

    @property
    def server(self) -> tuple[Path, Path]:
        """The learner's certificate and key."""
        return self.path / SERVER_CERT, self.path / SERVER_KEY
