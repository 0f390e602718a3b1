"""Tests that a flag means the same for every command, and that what means the same has one name."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator

import pytest
from rollcast.parsers import walk

from actor_client.cli import build_parser as actor_parser
from actor_client.unity.dropin.flags import build_parser as unity_parser
from learner.cli.cli import build_parser as learner_parser

PARSERS = [each for build in (actor_parser, unity_parser, learner_parser) for each in walk(build())]
OTHER_FORMS = {
    "--env": {"ID", "BUILD"},  # of Gymnasium, PettingZoo, Unity or Godot
    "--behavior": {"NAME", "PATTERN=NAME"},  # several agents have several
    "--join": {"KEY=VALUE", None},  # how an agent joins a world, or that a join code is printed
    "--output": {"DIR", "FILE"},  # of a token, or of a tournament
    "--address": {"HOST:PORT", "IP"},  # trainers meet at a port that they choose
    "--resume": {"auto", None},  # mlagents-learn has it without a value
}
"""Flags with several forms of values, each for a reason."""


def flags() -> Iterator[tuple[str, str, argparse.Action]]:
    """Yields each command with each of its flags."""
    for parser in PARSERS:
        for action in parser._actions:
            for flag in action.option_strings:
                yield parser.prog, flag, action


def test_json_is_a_switch_everywhere() -> None:
    """`--json` prints JSON on standard output; a file is by `>`."""
    found = {prog: action.nargs for prog, flag, action in flags() if flag == "--json"}
    assert set(found.values()) == {0}, found
    assert {f"rollcast-learner {name}" for name in ("status", "runs", "compare", "evaluate", "tournament")} < set(found)


def test_a_flag_has_one_form_of_value() -> None:
    """The same flag takes the same kind of value in every command."""
    forms: dict[str, dict[object, list[str]]] = defaultdict(lambda: defaultdict(list))
    for prog, flag, action in flags():
        forms[flag][action.metavar if action.nargs != 0 else None].append(prog)
    differing = {flag: dict(found) for flag, found in forms.items() if set(found) - {None} and len(found) > 1}
    assert {flag: set(found) for flag, found in differing.items() if flag not in OTHER_FORMS} == {}
    assert {flag: set(found) for flag, found in differing.items()} == OTHER_FORMS


def test_addresses_are_named_by_what_is_done_with_them() -> None:
    """What listens is an address, but that of clients, who are named; what is dialed is a learner, or its control address."""
    found = {flag for _, flag, action in flags() if action.metavar in {"HOST:PORT", "ADDR,...", "IP"}}
    dialed, of_clients = {"--learner", "--control"}, {"--listen", "--web", "--clients", "--clients-web"}
    assert dialed | of_clients < found
    assert {
        flag for flag in found - dialed - of_clients if not flag.endswith("-address") and flag != "--address"
    } == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--env_path", "--env"),
        ("--n_parallel", "--num-envs"),
        ("--show_window", "--viz"),
        ("--num-games", "--num-envs"),
        ("--max-seconds", "--max-wall-seconds"),
        ("--listen", "--player-address"),
        ("--listen", "--address"),
        ("--front", "--learner"),
        ("--out", "--output"),
        ("--width", "--search-width"),
        ("--episodes", "--window"),
    ],
)
def test_an_old_spelling_is_accepted_and_not_shown(old: str, new: str) -> None:
    """Scripts with the old spelling of a flag work; the help has the new one."""
    having = [each for each in PARSERS if each._option_string_actions.get(old) is each._option_string_actions.get(new)]
    having = [each for each in having if old in each._option_string_actions]
    assert having
    for parser in having:
        action = parser._option_string_actions[old]
        assert action.option_strings == [new]
        assert f" {old} " not in parser.format_help()


def test_the_flags_of_unity_have_a_page_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """`serve` and `check-config` take the flags of mlagents-learn, and list them only when asked."""
    unity = {flag for _, flag, _ in (row for row in flags() if row[0] == "rollcast-unity")}
    for name in ("serve", "check-config"):
        (parser,) = (each for each in PARSERS if each.prog == f"rollcast-learner {name}")
        shown = parser.format_help()
        assert "--time-scale" not in shown
        assert "--help-unity" in shown
        assert parser.parse_known_args(["--time-scale", "3", "--no-graphics"])[0].time_scale == "3"
        with pytest.raises(SystemExit):
            parser.parse_args(["--help-unity"])
        out = capsys.readouterr().out
        assert all(f"{flag} " in out for flag in ("--time-scale", "--env", "--num-envs", "--no-graphics", "--env-args"))
        assert {flag for flag in parser._option_string_actions if flag in out} > {"--time-scale", "--base-port"}
    assert "--time-scale" in unity
