"""Tests how environments are found and made."""

from __future__ import annotations

from pathlib import Path

import pytest

from actor_client.envs.errors import UnknownEnvironment
from actor_client.pettingzoo.agents import ParallelAgents, TurnAgents
from actor_client.pettingzoo.factory import make_agents
from tests.actor_client.pettingzoo import toys


@pytest.mark.parametrize(
    ("env", "interface", "agents"),
    [
        ("classic/connect_four-v3", TurnAgents, 2),
        ("rps_v2", ParallelAgents, 2),
        ("simple_spread_v3", ParallelAgents, 3),
        ("mpe2.simple_spread_v3", ParallelAgents, 3),
        ("mpe2.simple_spread_v3:env", TurnAgents, 3),
        (f"{toys.MODULE}:Field", ParallelAgents, 3),
        (f"{toys.MODULE}:duel", TurnAgents, 2),
    ],
)
def test_environments_are_found(env: str, interface: type, agents: int) -> None:
    """Ids of the registry and of mpe2, modules and callables are made; the parallel interface is preferred."""
    made = make_agents(env, {})
    assert isinstance(made, interface)
    assert len(made.environment.possible_agents) == agents
    made.environment.close()


def test_a_module_of_ones_own_needs_no_callable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the working folder with `parallel_env` or `env` is enough; one without says what to write."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "meadow_of_test.py").write_text(f"from {toys.MODULE} import Field as parallel_env\n")
    (tmp_path / "desert_of_test.py").write_text("")
    assert isinstance(make_agents("meadow_of_test", {}), ParallelAgents)
    with pytest.raises(UnknownEnvironment, match="neither parallel_env nor env; write desert_of_test:CALLABLE"):
        make_agents("desert_of_test", {})


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("conect_four_v3", "did you mean classic/connect_four-v3"),
        ("CartPole", "is no environment of PettingZoo or mpe2; for your own code, write module:callable"),
        ("absent.module", "module absent.module cannot be imported"),
        (f"{toys.MODULE}:absent", "has no absent"),
        (f"{toys.MODULE}:nothing", "returned None; an object with the interface of pettingzoo.ParallelEnv"),
        ("gymnasium:Env", "returned Env; .* use rollcast act gym"),
    ],
)
def test_an_error_says_what_to_write(env: str, message: str) -> None:
    """What cannot be made is one line with the next step."""
    with pytest.raises(UnknownEnvironment, match=message) as caught:
        make_agents(env, {})
    assert "\n" not in caught.value.message


def test_arguments_are_passed() -> None:
    """Arguments reach the environment; an error of its code names its type."""
    assert len(make_agents("simple_spread_v3", {"N": 5}).environment.possible_agents) == 5
    with pytest.raises(UnknownEnvironment, match="simple_spread_v3 cannot be created: TypeError"):
        make_agents("simple_spread_v3", {"planets": 9})
