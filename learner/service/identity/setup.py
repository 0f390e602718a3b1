"""Reads the identity files of a run file: the learner's certificate, and the tokens of its clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from rollcast.auth import TokenRow
from rollcast.server_tls import ServerSecurity
from rollcast.tls import IdentityError, readable_by_others

from learner.service.identity.access import Access
from learner.service.identity.audit import Audit
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.service import ServiceSettings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """The learner's certificate, and the principals that it knows.

    Attributes:
        access: The principals.
        security: The learner's certificate; None for plain text.
        audit: Records who changes the run.
    """

    access: Access = field(default_factory=Access)
    security: ServerSecurity | None = None
    audit: Audit = field(default_factory=Audit)


def identity_of(service: ServiceSettings, own: Iterable[TokenRow] = (), folder: Path | None = None) -> Identity:
    """Returns the identity that the settings describe.

    Args:
        service: The settings.
        own: Tokens that the learner keeps in the run folder.
        folder: The run folder that records who changes the run; None for none.

    Raises:
        UserError: A file cannot be used (RUN_FILE).
    """
    files, rows = service.identity_files, tuple(own)
    access = Access(files.tokens, takes_certificates=files.client_ca is not None, own=rows)
    audit = Audit(folder)
    if files.cert is None or files.key is None:
        return Identity(access, None, audit)
    try:
        security = ServerSecurity(files.cert, files.key, files.client_ca, on_problem=_report)
    except IdentityError as error:
        raise UserError(ExitCode.RUN_FILE, f"rollcast.tls_cert: {error}") from None
    if readable_by_others(files.key):
        _log.warning(
            "secret_readable_by_others", file=str(files.key), action=f"chmod 600 {files.key}, unless it is mounted"
        )
    return Identity(access, security, audit)


def _report(problem: str) -> None:
    _log.error("certificate_not_read", error=problem, action="the previous certificate stays in use")
