"""Tests that the rollcast block is safe by default."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.shared.settings.addresses import is_local
from learner.shared.settings.service import ServiceSettings


@pytest.mark.parametrize(
    "address", ["", "50051", "host", ":50051", "host:", "h:70000", "h:-1", "::1:50051", "h:٣", "http://h:1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """The message has the value and the expected form."""
    with pytest.raises(ValidationError, match=r"host:port|brackets"):
        ServiceSettings(address=address)


@pytest.mark.parametrize("host", ["a..b", ".b", "x" * 64, "a.%s.b" % ("ä" * 60), "a b", "a\0b", "\udcff"])
@pytest.mark.parametrize("setting", ["address", "http_address"])
def test_a_host_that_nobody_can_look_up_is_refused(setting: str, host: str) -> None:
    """A host name that the system cannot process is refused."""
    with pytest.raises(ValidationError, match="whose parts have 1 to 63 characters"):
        ServiceSettings.model_validate({setting: f"{host}:0", "insecure": True})


@pytest.mark.parametrize("host", ["a.b", "x" * 63, "bücher.example", "learner.", "[fe80::1%eth0]", "0.0.0.0"])  # noqa: S104
def test_a_host_of_another_kind_is_none_of_our_business(host: str) -> None:
    """Names of any language, with a final dot or with a zone, are accepted."""
    assert ServiceSettings(address=f"{host}:0", insecure=True).insecure


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("learner:1", False),
        ("127.0.0.1.x:1", False),
    ],
)
def test_loopback_is_told_from_the_rest(address: str, expected: bool) -> None:
    """Only addresses of this machine count as loopback."""
    assert expected == is_local(address)


def test_plain_text_for_other_machines_needs_consent() -> None:
    """An address that others can reach is refused without insecure."""
    with pytest.raises(ValidationError, match="--insecure"):
        ServiceSettings(address="0.0.0.0:50051")
    assert ServiceSettings(address="0.0.0.0:50051", insecure=True).insecure


@pytest.mark.parametrize("other", ["address", "http_address"])
def test_trainers_dial_an_address_of_their_own(other: str) -> None:
    """An address that another server has is refused by name at once; port 0 is a free one each time."""
    with pytest.raises(ValidationError, match=f"trainer_address 127.0.0.1:7 is that of {other}, too"):
        ServiceSettings.model_validate({other: "127.0.0.1:7", "trainer_address": "127.0.0.1:7"})
    assert ServiceSettings.model_validate({other: "127.0.0.1:0", "trainer_address": "127.0.0.1:0"}).has_ranks


def test_the_page_for_other_machines_needs_consent() -> None:
    """The page's address needs insecure too, unless the page is off."""
    with pytest.raises(ValidationError, match=r"http_address 0\.0\.0\.0:9464"):
        ServiceSettings(http_address="0.0.0.0:9464")
    assert ServiceSettings(http_address="0.0.0.0:9464", insecure=True).http
    assert not ServiceSettings(http_address="0.0.0.0:9464", http=False).http
    with pytest.raises(ValidationError, match="host:port"):
        ServiceSettings(http_address="9464")


def test_tls_for_other_machines_needs_identities() -> None:
    """TLS alone does not open an address that others reach: clients need tokens or certificates, or consent."""
    pair = {"tls_cert": "c", "tls_key": "k", "address": "0.0.0.0:50051"}
    with pytest.raises(ValidationError, match="need not prove who they are"):
        ServiceSettings.model_validate(pair)
    for more in ({"token_file": "t"}, {"tls_client_ca": "a"}, {"insecure": True}):
        assert ServiceSettings.model_validate(pair | more).tls_cert == "c"
    with pytest.raises(ValidationError, match="plain text"):
        ServiceSettings.model_validate({"address": "0.0.0.0:50051", "token_file": "t"})


def test_the_files_of_a_folder() -> None:
    """A folder stands for its files, and single settings replace them."""
    files = ServiceSettings.model_validate({"certs": "d", "token_file": "mine"}).identity_files
    assert [str(path) for path in (files.cert, files.key, files.ca, files.tokens)] == [
        "d/server.pem", "d/server.key", "d/ca.pem", "mine",
    ]  # fmt: skip
    assert files.client_ca is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"tls_cert": "c"}, "tls_cert needs tls_key"),
        ({"tls_key": "k"}, "tls_key needs tls_cert"),
        ({"tls_client_ca": "a"}, "needs a certificate of the learner"),
        ({"target_chunk_bytes": "8 MiB"}, "exceeds max_chunk_bytes"),
        ({"queue_bytes": "1 MiB"}, "exceeds queue_bytes"),
        ({"max_chunk_bytes": 10}, "greater than or equal to 65536"),
        ({"max_chunk_bytes": "1 GiB"}, "less than or equal to 4194304"),
        ({"lease_seconds": 0}, "greater than or equal to 0.1"),
        ({"max_policy_lag": -1}, "greater than or equal to 0"),
        ({"on_policy": "loose"}, "'relaxed' or 'strict'"),
    ],
)
def test_settings_that_cannot_work_are_refused(written: dict[str, object], message: str) -> None:
    """A part of an identity, contradictory sizes and non-positive times are refused."""
    with pytest.raises(ValidationError, match=message):
        ServiceSettings.model_validate(written)
