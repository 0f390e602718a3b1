"""Tests that all gates can be started, and that the pages are those of what was measured."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from deploy.examples.pixels.catch import CELL_PIXELS, Catch
from learner.shared.settings.load import load_run_options
from tests.tools.gates import cli, curves
from tests.tools.gates import results as files
from tests.tools.gates.catalog import GATES
from tests.tools.gates.connect_four import GAME, score, searching
from tests.tools.gates.environments.combination import _DIGITS, Combination
from tests.tools.gates.environments.sorting import NUMBERS, WIDTH, Sorting
from tests.tools.gates.gate import SHIPPED, Arm, Gate, Trained
from tests.tools.gates.greedy import make
from tests.tools.gates.imitation import RANDOM_RETURNS
from tests.tools.gates.rules import reaches
from tests.tools.gates.training import behavior_of, learner_command
from tests.tools.players.tasks import TASKS

ARMS = [pytest.param(arm, id=f"{gate.name}-{arm.name}") for gate in GATES for arm in gate.arms]
ARM = Arm("ppo", SHIPPED / "cartpole.yaml", "CartPole-v1", 95_000, 475.0)
OTHER = Arm("other", ARM.run_file, "CartPole-v1", 300_000, env_kwargs={"sutton_barto_reward": True}, actors=1)
RULE = reaches("ppo", 475.0, 95_000, far_off=400.0)
GATE = Gate("walking", "Walking, `ppo`", "475 train in 95,000", (ARM, OTHER), RULE)
RUN = Trained(1, "target_return", 78_000, 4.25, 400, 475.5, 475.5, 77_000, 4.0, curve=((2000, 20.0), (77_000, 475.5)))


def test_names_are_unique() -> None:
    """Names of gates, and of arms within a gate, are unique."""
    assert max(Counter(gate.name for gate in GATES).values()) == 1
    assert all(len({arm.name for arm in gate.arms}) == len(gate.arms) for gate in GATES)


@pytest.mark.parametrize("arm", ARMS)
def test_run_files_with_the_settings_of_their_arm_are_valid(arm: Arm) -> None:
    """The arms' learner arguments fit their run files, and none is ignored."""
    command = learner_command(arm, 1, arm.run_file)
    changes = [value for flag, value in itertools.pairwise(command) if flag == "--set"]
    loaded = load_run_options(arm.run_file, set_items=changes, environ={})
    assert loaded.options.behaviors[behavior_of(arm.run_file)].max_steps == arm.budget_steps
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    "env", sorted({arm.env for gate in GATES for arm in gate.arms if arm.actor == "gym"} - TASKS.keys())
)
def test_environments_exist(env: str) -> None:
    """Each `--env` is an environment of gymnasium or of the gates, and can be stepped."""
    if ":" not in env:
        assert gymnasium.spec(env).id == env
        return
    environment = make(env, {})
    environment.reset(seed=1)
    environment.action_space.seed(1)
    assert len(environment.step(environment.action_space.sample())) == 5


def smallest(view: NDArray[Any]) -> int:
    """Returns the smallest number of the tiles."""
    return int(np.flatnonzero(view.reshape(-1, WIDTH)[:, :NUMBERS].any(0)).min())


def follow(picture: NDArray[Any]) -> int:
    """Returns the move of the paddle towards the ball."""
    cells = picture[::CELL_PIXELS, ::CELL_PIXELS, 0]
    paddle = int(np.flatnonzero(cells[-1] == 160).mean())
    return int(np.sign(int(np.argwhere(cells == 255)[0, 1]) - paddle)) + 1


@pytest.mark.parametrize(
    ("env", "best"),
    [
        (Sorting(), smallest),
        (Sorting(attention=False), smallest),
        (Catch(), follow),
        (Combination(), lambda view: _DIGITS[int(view.argmax())]),
    ],
)
def test_the_best_play_returns_one(env: gymnasium.Env[Any, Any], best: Callable[[NDArray[Any]], int]) -> None:
    """Who plays as well as possible gets 1 in each episode, and who always does the same gets less."""
    for play, is_best in ((best, True), (lambda _: 1, False)):
        totals = []
        for seed in range(20):
            view, _ = env.reset(seed=seed)
            total, is_over = 0.0, False
            while not is_over:
                view, reward, is_over, *_ = env.step(np.int64(play(view)))
                total += float(reward)
            totals.append(total)
        assert (sum(totals) == pytest.approx(20.0)) is is_best


def test_demonstrations_come_from_an_earlier_arm() -> None:
    """An arm that imitates names an earlier arm that records."""
    for gate in GATES:
        recorded: set[str | None] = {None}
        for arm in gate.arms:
            assert arm.demonstrations in recorded
            assert (arm.demonstrations is not None) == ("{demo}" in " ".join(arm.settings))
            recorded |= {arm.name} if arm.recorded_episodes else set()


@pytest.mark.parametrize("env", sorted(RANDOM_RETURNS))
def test_chance_is_what_imitation_says_it_is(env: str) -> None:
    """The returns of random actions in the rules are those of the environment."""
    environment = make(env, {})
    environment.action_space.seed(0)
    returns = np.zeros(100)
    for seed in range(len(returns)):
        environment.reset(seed=seed)
        is_over = False
        while not is_over:
            _, reward, terminated, truncated, _ = environment.step(environment.action_space.sample())
            returns[seed] += float(reward)
            is_over = terminated or truncated
    assert abs(returns.mean() - RANDOM_RETURNS[env]) < 4.0 * returns.std() / 10.0


def test_gates_are_chosen_by_name_or_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    """A gate is selected by its name or the beginning of it, `--seeds` is a number or a list, and others are errors."""
    assert [gate.name for gate in cli._chosen(["catch"])] == ["catch"]
    assert len(cli._chosen(["cartpole-"])) > 2
    assert all(gate.name.startswith("cartpole-") for gate in cli._chosen(["cartpole-"]))
    assert cli._chosen([]) == [gate for gate in GATES if gate.length != "named"]
    assert cli._chosen(["quick"]) == [gate for gate in GATES if gate.length == "quick"]
    assert cli._with_seeds(GATE, "2").seeds == (1, 2)
    assert cli._with_seeds(GATE, "4,7").seeds == (4, 7)
    for wrong in (["chess"], ["catch", "--seeds", "0"], ["catch", "--seeds", "many"]):
        assert cli.main(wrong) == 2
    assert "there is no gate 'chess'" in capsys.readouterr().err


def test_results_become_the_pages(tmp_path: Path) -> None:
    """A result makes a row of the table, a curve, and the commands as a user types them."""
    results = {"ppo": [RUN], "other": [Trained(1, "max_steps", 1, 1.0, 9, -226.83, greedy=(-164.07,))]}
    content = files.document(GATE, results, RULE(results))
    files.write(tmp_path, content)
    measured = tmp_path / "measured.json"
    assert files.keep(tmp_path, [GATE], measured) == ["walking"]
    first, second = files.table(files.read(measured)).splitlines()[2:]
    assert first.startswith("| Walking, `ppo` | 475 train in 95,000 | 1 | ppo: 475.5 | 77,000 | 4 |")
    assert "other: -164.1 greedy (-226.8)" in second
    (picture,) = curves.keep(tmp_path, [GATE], tmp_path)
    assert picture.read_text(encoding="utf-8").count("<polyline") >= 1
    page = curves.page(files.read(measured), tmp_path)
    serve = "rollcast serve learner/run_files/cartpole.yaml --run-id"
    for line in (
        f"{serve} walking-ppo-1 --seed 1 --target-return 475.0 --set behaviors.CartPole.max_steps=95000",
        "rollcast act gym --env CartPole-v1 --num-envs 8  # 2 times",
        """rollcast act gym --env CartPole-v1 --env-kwargs '{"sutton_barto_reward": true}' --num-envs 8""",
        "](walking.svg)",
    ):
        assert line in page


def test_the_committed_pages_are_of_what_was_measured(tmp_path: Path) -> None:
    """The table and the page of curves equal those of the kept results, and a table replaces the older one."""
    text = files.PAGE.read_text(encoding="utf-8")
    assert text.partition(files.BEGIN)[2].partition(files.END)[0].strip() == files.table(files.read()).strip()
    assert curves.PAGE.read_text(encoding="utf-8") == curves.page(files.read())
    page = tmp_path / "page.md"
    page.write_text(f"before\n{files.BEGIN}\nold\n{files.END}\nafter\n")
    files.put_between_marks(page, "new")
    assert page.read_text() == f"before\n{files.BEGIN}\nnew\n{files.END}\nafter\n"


def test_a_training_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the same command at the same commit is read; another command or changed files train again."""
    file, run = tmp_path / "run.json", Trained(3, "max_steps", 10, 1.5, 2, 4.0, greedy=(1.0, 2.0), curve=((5, 1.0),))
    monkeypatch.setattr(files, "_commit", lambda: "12345678")
    assert files.kept_run(file, ["serve"]) is None
    files.keep_run(file, ["serve"], run)
    assert files.kept_run(file, ["serve"]) == run
    assert files.kept_run(file, ["serve", "--seed"]) is None
    monkeypatch.setattr(files, "_commit", lambda: "12345678+")
    assert files.kept_run(file, ["serve"]) is None


def test_searches_of_connect_four_win_and_prevent() -> None:
    """One ply takes a win; two plies take it first, and otherwise the field on which the other would win."""
    random = np.random.default_rng(1)
    position = GAME.start()
    for column in (0, 6, 1, 6, 2, 6):
        position.play(column)
    assert searching(2, random)(position) == 3
    threatened = GAME.start()
    for column in (0, 6, 1, 6, 2):
        threatened.play(column)
    assert {searching(2, random)(threatened) for _ in range(20)} == {3}
    assert len({searching(1, random)(threatened) for _ in range(50)}) > 3
    assert score(searching(2, random), searching(0, random), 20) > 0.8
    assert 0.2 < score(searching(0, random), searching(0, random), 40) < 0.8
