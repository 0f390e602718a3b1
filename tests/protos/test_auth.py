"""Tests of tokens, token files, names in certificates and join codes."""

from __future__ import annotations

import pytest
from rollcast.auth import (
    JoinCode,
    Principal,
    Role,
    TokenRow,
    bearer,
    make_token,
    moment,
    parse_tokens,
    principal_of_uri,
    token_hash,
)


def test_a_token_names_its_principal() -> None:
    """Each token of a principal is found until it expires, and nothing else is."""
    old, new, stranger = make_token(), make_token(), make_token()
    row = f"lab actor {token_hash(old)} max_sessions=2 behaviors=A,B not_after=2027-01-01T00:00:00Z"
    table = parse_tokens(f"# comment\n\n{row}\nlab actor {token_hash(new)}\n")
    before, after = moment("2026-12-31"), moment("2027-01-01T00:00:01Z")
    assert table.find(old, before) == Principal("lab", Role.ACTOR, 2, frozenset({"A", "B"}))
    assert table.find(new, after) == Principal("lab", Role.ACTOR)
    assert table.find(old, after) is None
    assert table.find(stranger, before) is None
    assert table.holds("lab", Role.ACTOR, after)
    assert not table.holds("lab", Role.VIEWER, after)
    assert not table.holds("ops", Role.OPERATOR, after)


def test_a_row_is_written_as_it_is_read() -> None:
    """The line of a row reads back to the same row."""
    row = TokenRow(Principal("x", Role.VIEWER, 3, frozenset({"W"})), token_hash(make_token()), moment("2027-05-06"))
    assert parse_tokens(row.line()).rows == (row,)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lab actor", "has 2 words"),
        ("lab king {hash}", "one of actor, viewer, operator"),
        ("a/b actor {hash}", "letters, digits"),
        (".. actor {hash}", "not only dots"),
        ("lab actor SECRET-TOKEN-OF-MANY-LETTERS", "the token's hash and not the token"),
        ("lab actor {hash} max_sessions=0", "from 1 to"),
        ("lab actor {hash} max_sessions=99999999999999999999", "from 1 to"),
        ("lab actor {hash} max_sessions=00000001999999999", "from 1 to"),
        ("lab actor {hash} behaviors=,,", "names none"),
        ("lab actor {hash} not_after=9999-12-31T23:59:59-14:00", "must be a date"),
        ("lab actor {hash} not_after=soon", "must be a date"),
        ("lab actor {hash} SECRET-TOKEN", "each further word"),
        ("lab actor {hash}\nlab viewer {other}", "line 2: principal lab has two roles"),
        ("lab actor {hash}\nfoo actor {hash}", "line 2: the same token"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(line: str, message: str) -> None:
    """An error names the line; a token written there by mistake is not in it."""
    text = line.format(hash=token_hash("a" * 32), other=token_hash("b" * 32))
    with pytest.raises(ValueError, match=message) as caught:
        parse_tokens(text)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        (["Bearer 0123456789abcdef"], "0123456789abcdef"),
        (["bearer  0123456789abcdef "], "0123456789abcdef"),
        ([], None),
        (["Basic 0123456789abcdef"], None),
        (["Bearer short"], None),
        (["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"], None),
        ([b"Bearer 0123456789abcdef"], None),
    ],
)
def test_the_token_of_a_header(headers: list[str | bytes], token: str | None) -> None:
    """Only exactly one well-formed header has a token."""
    assert bearer(headers) == token


def test_names_in_certificates() -> None:
    """A URI names a principal and its role; other URIs name none."""
    principal = Principal("lab-3", Role.ACTOR)
    assert principal_of_uri(principal.uri) == principal
    for uri in (
        "rollcast://king/x",
        "rollcast://actor/",
        "https://actor/x",
        "rollcast://actor/x/y",
        "rollcast://actor/..",
        "rollcast://actor/x\n",
    ):
        assert principal_of_uri(uri) is None


def test_operators_may_view() -> None:
    """An operator may do what a viewer may; no other role includes another."""
    includes = {(role, needed) for role in Role for needed in Role if role.includes(needed)}
    assert includes == {(role, role) for role in Role} | {(Role.OPERATOR, Role.VIEWER)}


PEM = """-----BEGIN CERTIFICATE-----
AAECAwQFBgcICQ==
-----END CERTIFICATE-----
"""


def test_a_join_code_is_one_word() -> None:
    """A code reads back, also with line breaks in it, and is not shown by accident."""
    code = JoinCode("host:50051", PEM, make_token())
    text = code.encode()
    assert text.isascii()
    assert JoinCode.decode(f" {text[:20]}\n{text[20:]}\n") == code
    assert code.token not in repr(code)


@pytest.mark.parametrize("damage", [slice(0, -5), slice(9, None), slice(0, 0)])
def test_a_damaged_join_code(damage: slice) -> None:
    """A part of a code is refused without being shown."""
    text = JoinCode("host:50051", PEM, make_token()).encode()
    with pytest.raises(ValueError, match="not a whole join code"):
        JoinCode.decode(text[damage])
