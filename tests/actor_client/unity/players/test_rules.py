"""The user of the machine over the run file, the run file over ML-Agents' defaults."""

from __future__ import annotations

from rollcast.v1 import session_pb2

from actor_client.connection.session import RunInfo
from actor_client.rollout.link import ChunkLimits
from actor_client.settings.commands import UnitySettings
from actor_client.settings.loading import load
from actor_client.unity.players.rules import resolve_rules


def run_info(
    environment: session_pb2.EnvironmentSettings | None = None, engine: session_pb2.EngineSettings | None = None
) -> RunInfo:
    """What a learner answers."""
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
    """A zero in it is a zero."""
    rules = resolve_rules(load(UnitySettings, {"env": "B"}, {}), RUN_FILE)
    assert (rules.timeout_seconds, rules.max_lifetime_restarts, rules.rate_limit) == (30.0, 0, -1)
    assert (rules.period_seconds, rules.env_args) == (5.0, ("--a",))
    assert (rules.no_graphics, rules.no_graphics_monitor) == (True, True)


def test_flags_win() -> None:
    """Each on its own."""
    flags = {"env": "B", "timeout_wait": "2", "max_lifetime_restarts": "3", "env_args": ["--b", "c d"]}
    rules = resolve_rules(load(UnitySettings, flags, {}), RUN_FILE)
    assert (rules.timeout_seconds, rules.max_lifetime_restarts, rules.rate_limit) == (2.0, 3, -1)
    assert rules.env_args == ("--b", "c d")
    rules = resolve_rules(load(UnitySettings, {"env": "B", "restarts_rate_limit_n": "0"}, {}), RUN_FILE)
    assert (rules.rate_limit, rules.period_seconds) == (0, 5.0)


def test_a_learner_that_says_nothing_leaves_defaults() -> None:
    """Those of ML-Agents."""
    rules = resolve_rules(load(UnitySettings, {"env": "B"}, {}), run_info())
    assert (rules.timeout_seconds, rules.max_lifetime_restarts, rules.rate_limit) == (60.0, 10, 1)
    assert (rules.period_seconds, rules.env_args, rules.no_graphics) == (60.0, (), False)
