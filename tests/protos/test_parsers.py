"""Tests what an unknown flag is answered with."""

from __future__ import annotations

import pytest
from rollcast.parsers import MEANT, subparsers_of, walk

from actor_client.cli import build_parser as actor_parser
from actor_client.exits import ActorError
from actor_client.unity.dropin.exits import DropInError
from actor_client.unity.dropin.flags import build_parser as unity_parser
from learner.cli.cli import build_parser as learner_parser
from learner.shared.exits import UserError
from learner.shared.settings.load import load_run_options

PARSERS = {each.prog: each for build in (actor_parser, unity_parser, learner_parser) for each in walk(build())}
MAX_STEPS = "behaviors.NAME.max_steps"


def said(prog: str, *words: str) -> str:
    """Returns what a command answers."""
    with pytest.raises((ActorError, DropInError, UserError)) as caught:
        PARSERS[prog].parse_args(words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("prog", "words", "meant"),
    [
        ("rollcast-learner train", ("--env", "X", "--max-steps", "9"), f"; did you mean --set {MAX_STEPS}=VALUE?; see"),
        ("rollcast-learner serve", ("--total_timesteps=9",), f"; did you mean --set {MAX_STEPS}=VALUE?; see"),
        ("rollcast-learner train", ("--env", "X", "--max-episode-length", "9"), "; did you mean --max-episode-steps?"),
        ("rollcast-learner train", ("--env", "X", "--max-epsiode-steps", "9"), "; did you mean --max-episode-steps?"),
        ("rollcast-learner train", ("--env", "X", "--algo", "sac"), "; did you mean --trainer?"),
        ("rollcast-learner serve", ("--algo", "sac"), "; did you mean --set behaviors.NAME.trainer_type=VALUE?"),
        ("rollcast-learner train", ("--env", "X", "--device", "cpu"), "; did you mean --torch-device?"),
        ("rollcast-learner evaluate", ("run", "--n-eval-episodes", "9"), "; did you mean --episodes?"),
        ("rollcast-learner status", ("--host", "x"), "; did you mean --control?"),
        ("rollcast-unity", ("--max-steps", "9"), f"; did you mean --set {MAX_STEPS}=VALUE?"),
        ("rollcast-unity", ("--keep-checkpoints=9",), "; did you mean --set behaviors.NAME.keep_checkpoints=VALUE?"),
        ("rollcast-actor gym", ("--max-steps", "9"), f"; {MAX_STEPS} is a setting of the learner's run: rollcast serve --set "),
        ("rollcast-actor gym", ("--host", "x"), "; did you mean --learner?"),
        ("rollcast-actor boards", ("--env-id", "shogi"), "; did you mean --game?"),
        ("rollcast-learner train", ("--env-id", "CartPole-v1"), "; did you mean --env?"),
        ("rollcast-learner trainer", ("--host", "x"), "; did you mean --learner?"),
        ("rollcast-learner evaluate", ("--n-eval-episodes", "9"), "; did you mean --episodes?"),
        ("rollcast-learner certs token", ("--out-dir", "x"), "; did you mean --output?"),
        ("rollcast-learner train", (), "required: --env"),
        ("rollcast-actor gym", ("--tracking", "x"), "unrecognized arguments: --tracking x; see"),
    ],
)  # fmt: skip
def test_a_word_of_another_program_is_answered_with_what_it_means(
    prog: str, words: tuple[str, ...], meant: str
) -> None:
    """The flag or the setting with that meaning is named, not the one with the most similar name."""
    assert meant in said(prog, *words)


def test_each_meaning_exists() -> None:
    """Every flag of the table is one of a command, and every setting one of a run; no word hides a flag of its own."""
    flags = {flag for parser in PARSERS.values() for flag in parser._option_string_actions}
    meanings = {meaning for each in MEANT.values() for meaning in each}
    assert {meaning for meaning in meanings if meaning.startswith("--")} <= flags
    settings = sorted(meaning.replace("NAME", "A") for meaning in meanings if not meaning.startswith("--"))
    loaded = load_run_options(None, set_items=["behaviors.A.trainer_type=ppo"])
    words = {"trainer_type": "sac", "stats_writers": "[csv]", "normalize": "true"}
    for path in settings:
        assert path in loaded.sources, path
        item = f"{path}={words.get(path.rpartition('.')[2], '0.5' if 'gamma' in path or 'lambd' in path else '64')}"
        load_run_options(None, set_items=["behaviors.A.trainer_type=ppo", item])


@pytest.mark.parametrize("prog", sorted(PARSERS))
def test_no_command_is_advised_a_flag_that_it_has_not(prog: str) -> None:
    """For every word, a command names one of its own flags, a setting, or nothing."""
    if subparsers_of(PARSERS[prog]):
        return
    own = PARSERS[prog]._option_string_actions
    required = [word for action in PARSERS[prog]._actions if action.required for word in _given(action)]
    for word in MEANT:
        if any(flag.startswith(f"--{word}") for flag in own):  # which argparse completes
            continue
        found = said(prog, *required, f"--{word}=1")
        meant = found.partition("did you mean ")[2].partition("?")[0].split()
        assert not meant or meant[0] in own, found


def _given(action: object) -> list[str]:
    flags, kind = getattr(action, "option_strings", []), getattr(action, "choices", None)
    return [*flags[-1:], next(iter(kind)) if kind else "1"]
