"""Tests what a sweep understands and refuses, and its page; tests/e2e/test_sweep.py runs sweeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from learner.cli.cli import build_parser, main
from learner.cli.sweep import request_of
from learner.cli.sweep_page import ENDED, PRUNED, RUNNING, TrialRow, page
from learner.cli.sweep_request import FINAL, TARGET_STEPS, Request, space_of
from learner.cli.sweep_run import _importance, _open_study
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.curves import Curve
from learner.shared.settings.by_name import settings_by_name

RATE = "--space=learning_rate=log:1e-5:1e-2"


def asked(*words: str) -> Request:
    """Returns what a command line asks for."""
    return request_of(build_parser().parse_args(["sweep", *words]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rate=log:1e-5:1e-2", "log:1e-05:0.01"),
        ("gamma=uniform:0.9:0.999", "uniform:0.9:0.999"),
        ("num_epoch=int:2:10", "int:2:10:1"),
        ("hidden_units=int:32:256:32", "int:32:256:32"),
        ("batch_size=choice:64,128", "choice:64, 128"),
        ("learning_rate_schedule=choice:constant,linear", 'choice:"constant", "linear"'),
        ('behaviors.A.x=choice:"a,b",null,true', 'choice:"a,b", null, true'),
    ],
)
def test_spaces(text: str, said: str) -> None:
    """Each form of a space is read, and is shown with its values."""
    name, space = space_of(text)
    assert (name, str(space)) == (text.partition("=")[0], said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rate", "there is no space ''"),
        ("=log:1:2", "names no setting"),
        ("a=normal:0:1", "no space 'normal'"),
        ("a=log:0:1", "above 0"),
        ("a=uniform:2:1", "2 is not below 1"),
        ("a=uniform:0:inf", "0 is not below inf"),
        ("a=uniform:0:1:2", "of int alone"),
        ("a=uniform:0", "not enough values"),
        ("a=int:0:5:0", "from 1 on"),
        ("a=int:0.5:5", "invalid literal"),
        ("a=choice:1", "two or more"),
        ("a=choice:1,1", "two or more"),
        ("a=choice:[1],2", "numbers, words"),
    ],
)
def test_what_is_no_space_is_refused(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line, which says what is wrong and shows the forms."""
    assert main(["sweep", "--env", "CartPole-v1", "--space", text]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "KEY=log:LOW:HIGH" in line


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((RATE, RATE), ExitCode.USAGE, "a setting twice"),
        ((RATE, "--env=CartPole-v1", "--address=127.0.0.1:0", "--parallel=2"), ExitCode.USAGE, "leave out --parallel"),
        ((RATE, "--address=127.0.0.1:0"), ExitCode.USAGE, "would not find the next trial"),
        ((RATE, "none.yaml"), ExitCode.RUN_FILE, "none.yaml"),
        ((), ExitCode.USAGE, "--space"),
    ],
)
def test_what_cannot_be_swept_is_refused(words: Any, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No trial is started."""
    assert main(["sweep", *words]) == code
    assert said in capsys.readouterr().err


def test_without_optuna_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says how to install it, and leaves no folder."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "learner.cli.sweep_run")
    assert main(["sweep", "--env=CartPole-v1", RATE, f"--results-dir={tmp_path}"]) == ExitCode.MISSING_EXTRA
    assert "learner,sweep]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_trials_get_the_flags_of_the_command() -> None:
    """Those of the sweep itself are left out; with `--env` a trial trains, without it serves."""
    request = asked(
        "run.yaml", "--env=A", RATE, "--num-envs=8", "--vector", "--set=a.b=1", "--set=c=2", "--run-id=mine"
    )
    assert (request.command, request.folder, request.address) == ("train", Path("results/mine"), None)
    assert request.words == ("run.yaml", "--env=A", "--num-envs=8", "--vector", "--set=a.b=1", "--set=c=2")
    ended = asked("--env=A", RATE, "--force", "--seed=7", "--actor-args", "--log-level", "debug")
    assert (ended.words, ended.seed, ended.is_forced) == (("--env=A", "--seed=7"), 7, True)
    assert ended.last_words == ("--actor-args", "--log-level", "debug")
    served = asked(RATE, "--address=127.0.0.1:5000")
    assert (served.command, served.address) == ("serve", "127.0.0.1:5000")


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("learning_rate", 1e-4, [("behaviors.*.hyperparameters.learning_rate", "0.0001")]),
        ("learning_rate_schedule", "linear", [("behaviors.*.hyperparameters.learning_rate_schedule", "linear")]),
        ("hidden_units", 64, [("behaviors.*.network_settings.hidden_units", "64")]),
        ("gamma", 0.9, [("behaviors.*.reward_signals.extrinsic.gamma", "0.9")]),
        ("max_steps", 5, [("behaviors.*.max_steps", "5")]),
        ("a.b", None, [("a.b", "null")]),
    ],
)
def test_a_setting_is_found_by_its_name(name: str, value: object, found: list[tuple[str, str]]) -> None:
    """Names of the trainer count for every behavior; a path is itself; a word stays a word."""
    assert list(settings_by_name(name, value)) == found


def test_a_study_keeps_its_terms(tmp_path: Path) -> None:
    """A sweep with another space or objective is refused; the same continues, and `--force` starts over."""
    words = ("--env=A", RATE, f"--results-dir={tmp_path}")
    asked(*words).folder.mkdir()
    _open_study(asked(*words)).ask()
    assert len(_open_study(asked(*words, "--trials=50", "--parallel=3")).trials) == 1
    for other in (("--objective=best",), ("--space=gamma=uniform:0.9:1",)):
        with pytest.raises(UserError, match="has other terms") as caught:
            _open_study(asked(*words, *other))
        assert caught.value.exit_code == ExitCode.RUN_FOLDER_EXISTS
    assert _open_study(asked(*words, "--objective=best", "--force")).trials == []
    (tmp_path / "sweep" / "study.db").write_bytes(b"no database, and longer than a page" * 1000)
    with pytest.raises(UserError, match="cannot be read as a study"):
        _open_study(asked(*words))


def test_each_start_draws_other_samples(tmp_path: Path) -> None:
    """With a seed too, a study that continues does not begin with the settings of its first trials."""
    request = asked("--env=A", RATE, "--seed=3", f"--results-dir={tmp_path}")
    request.folder.mkdir()
    drawn = [request.space["learning_rate"].sample(_open_study(request).ask(), "learning_rate") for _ in range(3)]
    assert len(set(drawn)) == 3


def test_importance_needs_some_trials(tmp_path: Path) -> None:
    """It finds the setting on which the objective depends."""
    request = asked("--env=A", RATE, "--space=gamma=uniform:0:1", "--seed=1", f"--results-dir={tmp_path}")
    request.folder.mkdir()
    study = _open_study(request)
    assert _importance(study) == {}
    for _ in range(40):
        trial = study.ask()
        drawn = {name: space.sample(trial, name) for name, space in request.space.items()}
        study.tell(trial, drawn["gamma"])
    found = _importance(study)
    assert found["gamma"] > 0.8 > found["learning_rate"]


@pytest.mark.parametrize(("objective", "best"), [(FINAL, "0001"), (TARGET_STEPS, "0000")])
def test_the_page_has_trials_curves_and_importance(objective: str, best: str) -> None:
    """The best trial is marked, names are no markup, and it is read again until the sweep has ended."""
    curve = Curve("0000", "A", (100, 200), (1.0, 2.0), (5.0, 9.0))
    rows = [
        TrialRow("0000", ENDED, 9.0, {"<i>": 0.5}, curve),
        TrialRow("0001", ENDED, 90.0, {"<i>": 0.25}, curve),
        TrialRow("0002", PRUNED, None, {"<i>": 0.75}, curve),
        TrialRow("0003", RUNNING, None, {"<i>": 1.0}, None),
    ]
    terms = {"objective": objective, "space": {"<i>": "uniform:0:1"}}
    is_lower_better = objective == TARGET_STEPS
    text = page("<b>", rows, terms, {"<i>": 1.0}, is_lower_better=is_lower_better, refresh_seconds=5.0)
    assert "<b>" not in text
    assert "<i>" not in text
    assert f'<tr class=best><td><a href="{best}/">' in text
    assert text.count('class="spark"') == 3
    assert all(
        said in text for said in ("best so far", "the best trials", "PED-ANOVA", "ended early", 'http-equiv="refresh"')
    )
    assert "refresh" not in page("a", [], terms, {}, is_lower_better=False, refresh_seconds=None)
