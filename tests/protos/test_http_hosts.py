"""Tests for which host names servers answer."""

import pytest
from rollcast.http_hosts import AllowedHosts


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost:9464", True),
        ("LOCALHOST", True),
        ("localhost.", True),
        ("127.0.0.1:80", True),
        ("127.9.9.9", True),
        ("[::1]:9464", True),
        ("[::1]", True),
        ("evil.example:9464", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - a name in a header
        ("", False),
        (":9464", False),
        ("[::1", False),
    ],
)
def test_names_of_this_machine(host: str, is_local: bool) -> None:
    """A loopback port answers only to names of this machine, with any port number."""
    hosts = AllowedHosts("127.0.0.1:9464", [], setting="--hosts")
    assert hosts.allow([host]) is is_local
    assert not hosts.allow([host, host])
