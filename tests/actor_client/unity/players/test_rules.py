"""Tests that the machine's user overrides the run file, which overrides ML-Agents' defaults."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rollcast.v1 import session_pb2

from actor_client.connection.session import RunInfo
from actor_client.exits import ActorError, ExitCode
from actor_client.rollout.link import ChunkLimits
from actor_client.settings.commands import UnitySettings
from actor_client.settings.loading import load
from actor_client.unity.players.rules import NO_LIMIT, RestartQuota, log_place, resolve_rules


def run_info(
    environment: session_pb2.EnvironmentSettings | None = None, engine: session_pb2.EngineSettings | None = None
) -> RunInfo:
    """Returns what a learner answers."""
    return RunInfo(
        run_id="run",
        generation=1,
        actor_index=0,
        run_seed=1,
        behaviors=(),
        limits=ChunkLimits(1, 1, 1.0, 1),
        lease_seconds=1.0,
        environment_settings=environment or session_pb2.EnvironmentSettings(),
        engine_settings=engine or session_pb2.EngineSettings(),
    )


RUN_FILE = run_info(
    session_pb2.EnvironmentSettings(
        env_args=["--a"],
        num_areas=2,
        timeout_wait_seconds=30.0,
        max_lifetime_restarts=0,
        restarts_rate_limit_n=-1,
        restarts_rate_limit_period_seconds=5.0,
    ),
    session_pb2.EngineSettings(no_graphics=True, no_graphics_monitor=True),
)


def test_the_run_file_rules_where_nothing_else_is_said() -> None:
    """The run file's values apply, including zero."""
    rules = resolve_rules(load(UnitySettings, {"env": "B", "allow_env_args": "--a"}, {}), RUN_FILE)
    assert (rules.timeout_seconds, rules.max_lifetime_restarts, rules.rate_limit) == (30.0, 0, -1)
    assert (rules.period_seconds, rules.env_args) == (5.0, ("--a",))
    assert (rules.no_graphics, rules.no_graphics_monitor) == (True, True)


def test_flags_win() -> None:
    """Each flag overrides the run file."""
    flags = {"env": "B", "timeout_wait": "2", "max_lifetime_restarts": "3", "env_args": ["--b", "c d"]}
    rules = resolve_rules(load(UnitySettings, flags, {}), RUN_FILE)
    assert (rules.timeout_seconds, rules.max_lifetime_restarts, rules.rate_limit) == (2.0, 3, -1)
    assert rules.env_args == ("--b", "c d")
    rules = resolve_rules(
        load(UnitySettings, {"env": "B", "restarts_rate_limit_n": "0", "allow_env_args": "--a"}, {}), RUN_FILE
    )
    assert (rules.rate_limit, rules.period_seconds) == (0, 5.0)


def test_a_learner_that_says_nothing_leaves_defaults() -> None:
    """Without values from the learner, ML-Agents' defaults apply."""
    rules = resolve_rules(load(UnitySettings, {"env": "B"}, {}), run_info())
    assert (rules.timeout_seconds, rules.max_lifetime_restarts, rules.rate_limit) == (60.0, 10, 1)
    assert (rules.period_seconds, rules.env_args, rules.no_graphics) == (60.0, (), False)


@pytest.mark.parametrize("most", [0, 2])
def test_a_lifetime_has_so_many_restarts(most: int) -> None:
    """The restart after the lifetime limit is refused with the name of the key."""
    quota = RestartQuota(most, NO_LIMIT, 60.0)
    for _ in range(most):
        assert quota.refusal() is None
        quota.count()
    assert f"max_lifetime_restarts is {most}" in (quota.refusal() or "")


def test_without_limits_nothing_is_refused_nor_kept() -> None:
    """Without limits no restart is refused, and no times are kept."""
    quota = RestartQuota(NO_LIMIT, NO_LIMIT, 60.0)
    for _ in range(1000):
        assert quota.refusal() is None
        quota.count()
    assert not quota._recent


def test_a_period_has_so_many_restarts() -> None:
    """Restarts older than the period do not count; a limit of 0 allows none."""
    now = [0.0]
    quota = RestartQuota(NO_LIMIT, 1, 60.0, lambda: now[0])
    quota.count()
    now[0] = 60.0
    assert "1 times within 60 s, and restarts_rate_limit_n is 1" in (quota.refusal() or "")
    now[0] = 60.1
    assert quota.refusal() is None
    assert quota.restarts == 1
    assert RestartQuota(NO_LIMIT, 0, 60.0).refusal() is not None


@pytest.mark.parametrize(
    ("words", "allowed", "foreign"),
    [
        (("--level", "2", "--seed=7"), "--level,--SEED", None),
        ((), "", None),
        (("-logFile", "../profile"), "", "-logFile"),
        (("--level", "2", "-LOGFILE=../profile"), "--level", "-LOGFILE"),
        (("--level", "-batchmode", "-executeMethod", "X"), "--level", "-batchmode, -executeMethod"),
        (("../profile",), "--level", "../profile"),
        (("--levels", "2"), "--level", "--levels"),
    ],
)
def test_a_learner_gives_builds_only_allowed_flags(words: tuple[str, ...], allowed: str, foreign: str | None) -> None:
    """Flags that this machine's user has not allowed end the actor with one line that names them; own ones need no leave."""
    run = dataclasses.replace(run_info(), environment_settings=session_pb2.EnvironmentSettings(env_args=words))
    settings = load(UnitySettings, {"env": "B", "allow_env_args": allowed}, {})
    if foreign is None:
        assert resolve_rules(settings, run).env_args == words
        return
    with pytest.raises(ActorError) as caught:
        resolve_rules(settings, run)
    assert caught.value.exit_code is ExitCode.USAGE
    assert f"starts the build with {foreign}, which" in caught.value.message
    own = load(UnitySettings, {"env": "B", "env_args": list(words)}, {})
    assert resolve_rules(own, run).env_args == words


def test_logs_lie_where_ml_agents_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first actor's logs have ML-Agents' names; those of other actors have the actor's name."""
    monkeypatch.chdir(tmp_path)
    place = log_place(None, run_info())
    assert place.folder == tmp_path / "results" / "run" / "run_logs"
    assert not place.prefix
    assert not list(place.folder.iterdir())
    assert log_place(None, dataclasses.replace(run_info(), actor_index=2)).prefix == "2-"


@pytest.mark.parametrize("run_id", ["..", "../../etc", "/etc", "", "a/../../b", ".hidden"])
def test_a_learner_does_not_choose_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    """A run name that is not a plain word gives no folder."""
    monkeypatch.chdir(tmp_path)
    assert log_place(None, dataclasses.replace(run_info(), run_id=run_id)).folder is None
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_asked_for_must_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default log folder that cannot be made is skipped; a requested one is an error of one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").write_text("a file in the way")
    assert log_place(None, run_info()).folder is None
    with pytest.raises(ActorError, match="logs cannot be written to results/x") as failure:
        log_place(Path("results/x"), run_info())
    assert failure.value.exit_code is ExitCode.NOT_WRITTEN
    assert log_place(Path("mine"), run_info()).folder == tmp_path / "mine"
