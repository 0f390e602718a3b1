"""Tests how environments are made from the command line."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from rollcast.enums import ObservationKind
from rollcast.extras import install

from actor_client.envs.errors import UnknownEnvironment, UnsupportedSpace
from actor_client.envs.factory import make_env_batch
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.envs import toys


@pytest.mark.parametrize("vector", [False, True])
def test_a_gymnasium_id_is_made(vector: bool) -> None:
    """CartPole is made from its id, as separate copies and through its vector entry point."""
    batch = make_env_batch("CartPole-v1", num_envs=3, vector=vector, behavior="Pole")
    observations = batch.reset([1, 2, 3])
    result = batch.step(None, np.zeros((3, 1), np.int32))
    batch.close()

    assert batch.spec.name == "Pole"
    assert batch.spec.action.discrete_branches == (2,)
    assert [(spec.kind, spec.shape) for spec in batch.spec.observations] == [(ObservationKind.VECTOR, (4,))]
    assert observations[0].shape == (3, 4)
    assert observations[0].dtype == np.float32
    assert result.rewards.tolist() == [1.0, 1.0, 1.0]


def test_environment_arguments_are_passed() -> None:
    """Arguments reach a Gymnasium environment, its vector entry point and a callable."""
    for vector in (False, True):
        batch = make_env_batch("CartPole-v1", num_envs=1, env_kwargs={"sutton_barto_reward": True}, vector=vector)
        batch.reset([0])
        assert batch.step(None, np.zeros((1, 1), np.int32)).rewards.tolist() == [0.0]
        batch.close()
    made = make_env_batch(f"{toys.MODULE}:toy", num_envs=1, env_kwargs={"length": 1})
    made.reset([0])
    assert list(made.step(None, np.zeros((1, 1), np.int32)).ended) == [0]


def test_the_real_time_limit_and_order_check_stay() -> None:
    """Gymnasium's time limit truncates Pendulum after 200 steps."""
    batch = make_env_batch("Pendulum-v1", num_envs=1)
    batch.reset([0])
    results = [batch.step(np.zeros((1, 1), np.float32), None) for _ in range(201)]

    assert [step for step, result in enumerate(results, start=1) if result.ended] == [200]


def test_a_callable_may_make_a_vector_environment() -> None:
    """With the vector flag a callable gets the number of copies."""
    batch = make_env_batch(f"{toys.MODULE}:several", num_envs=3, env_kwargs={"mode": "SameStep"}, vector=True)

    assert batch.num_envs == 3
    assert batch.reset([0, 0, 0])[0].shape == (3, 3)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPol-v1", "CartPole"),
        ("CartPole-v77", "v1"),
        ("not an id", "not an id"),
        ("no_such_package.at_all:make", "No module named 'no_such_package'"),
        (f"{toys.MODULE}:missing", "has no missing"),
        (f"{toys.MODULE}:not_callable", "is int; a callable"),
        (f"{toys.MODULE}:broken", "the simulator is not installed"),
        ("some/corridor.py:Corridor", "write corridor:Corridor, with some as the working directory"),
        (r"C:\games\arena.py", "module:callable"),
        (f"{toys.MODULE}:nothing", "returned None; an object with the interface of gymnasium.Env is needed"),
        ("builtins:dict", "returned dict, which has no reset, step,"),
        (f"{toys.MODULE}:unboxed", install("actor,gym,box2d")),
        (f"{toys.MODULE}:jointless", install("actor,gym,mujoco")),
    ],
)
def test_what_cannot_be_made_is_told_in_one_line(env: str, message: str) -> None:
    """The error names the environment and the cause, with gymnasium's suggestion if there is one."""
    with pytest.raises(UnknownEnvironment) as caught:
        make_env_batch(env, num_envs=1)

    assert message in caught.value.message
    assert env in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT


def test_a_board_game_is_told() -> None:
    """A name that only OpenSpiel knows comes with the command that plays it; one that nobody knows, without."""
    with pytest.raises(
        UnknownEnvironment,
        match=r"tic_tac_toe is a board game: .*boards --game tic_tac_toe, or rollcast evaluate",
    ):
        make_env_batch("tic_tac_toe", num_envs=1)
    with pytest.raises(UnknownEnvironment) as caught:
        make_env_batch("tic_tac_toad", num_envs=1)
    assert "board game" not in caught.value.message


def test_no_vector_entry_point_is_told() -> None:
    """An environment without a vector entry point says so."""
    with pytest.raises(UnknownEnvironment, match="leave out --vector"):
        make_env_batch("Acrobot-v1", num_envs=2, vector=True)


def test_what_a_learner_would_refuse_is_refused_at_once() -> None:
    """A spec beyond the limits of the contract is refused before a connection is opened."""
    with pytest.raises(UnsupportedSpace, match="cannot be declared"):
        make_env_batch("CartPole-v1", num_envs=1, behavior="a/b")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gymnasium the error says what to install."""
    monkeypatch.setitem(sys.modules, "gymnasium", None)

    with pytest.raises(ActorError, match=re.escape(install("actor,gym"))) as caught:
        make_env_batch("CartPole-v1", num_envs=1)
    assert caught.value.exit_code is ExitCode.MISSING_EXTRA


@pytest.mark.parametrize(("name", "interface"), [("duel", "AEC"), ("Field", "Parallel")])
def test_pettingzoo_is_refused_by_that_name(name: str, interface: str) -> None:
    """PettingZoo environments are refused with one line that names the other command."""
    with pytest.raises(UnknownEnvironment, match=f"{interface} interface.; use rollcast act pettingzoo"):
        make_env_batch(f"tests.actor_client.pettingzoo.toys:{name}", num_envs=1)
