"""Tests changes of settings while a run trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from rollcast.errors import SettingRefused

from learner.link.control import Request, RequestKind, SettingChange
from learner.shared.settings.hyperparameters import OWN_TRAINERS
from learner.shared.settings.service import ServiceSettings
from learner.training.curriculum.lessons import Lessons
from learner.training.run.steering import Steering
from learner.training.trainers.registry import build
from learner.training.trainers.rl import RLTrainer
from tests.e2e.lockstep import differences
from tests.learner.training.curriculum.curricula import curriculum, parameters
from tests.learner.training.trainers.grouped import SPAN, GroupActor
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor

NAME = CONTINUOUS.name
BLOCKS: dict[str, Any] = {"network_settings": {"hidden_units": 8}, "time_horizon": 20, "max_steps": 1000}
FRESH = {"buffer_size": 60, "batch_size": 16, "num_epoch": 2}
WRITTEN: dict[str, dict[str, Any]] = {
    "ppo": FRESH,
    "appo": FRESH,
    "impala": FRESH,
    "poca": FRESH,
    "sac": {"buffer_size": 500, "batch_size": 16, "steps_per_update": 10},
}
OTHERS: dict[str, Any] = {
    "learning_rate": 2e-3,
    "learning_rate_schedule": "cosine",
    "learning_rate_warmup": 100,
    "desired_kl": 0.02,
    "target_kl": 1e-5,
    "beta": 0.05,
    "beta_schedule": "constant",
    "num_epoch": 3,
    "max_grad_norm": 0.05,
    "value_coefficient": 0.1,
    "epsilon": 0.3,
    "epsilon_schedule": "cosine",
    "lambd": 0.5,
    "rho_bar": 0.7,
    "c_bar": 0.6,
    "tau": 0.2,
    "target_entropy": -3.5,
    "policy_learning_rate": 1e-4,
    "critic_learning_rate": 5e-3,
    "temperature_learning_rate": 1e-2,
}
"""Another value of each hyperparameter that can change."""
HIDING = frozenset({"target_kl", "policy_learning_rate", "critic_learning_rate", "temperature_learning_rate"})
"""Those beside which others, such as ``num_epoch`` and ``learning_rate``, have no effect."""


@dataclass
class Steered:
    """A trainer whose settings can change.

    Attributes:
        noted: Each change that was recorded.
        told: Settings of the service that its parts got.
    """

    bench: Bench
    trainer: RLTrainer
    lessons: Lessons
    noted: list[tuple[SettingChange, str, bool]] = field(default_factory=list)
    told: list[ServiceSettings] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steering = self.another()

    def another(self, **service: Any) -> Steering:
        """Returns that of another start."""
        settings = ServiceSettings.model_validate({"target_return": 100.0, **service})
        return Steering(settings, self.lessons, self.told.append, lambda *each: self.noted.append(each))

    def set(self, **values: object) -> dict[str, object]:
        """Changes settings, and returns their new values."""
        texts = {name: "null" if value is None else str(value) for name, value in values.items()}
        return self._ask(Request(1, RequestKind.SET, texts, "ops"))

    def undo(self) -> dict[str, object]:
        """Undoes the last change."""
        return self._ask(Request(2, RequestKind.UNDO, principal="ops"))

    def _ask(self, request: Request) -> dict[str, object]:
        return {each.name: each.new for each in self.steering.change(request, {NAME: self.trainer})}

    def train(self) -> dict[str, Any]:
        """Trains some updates and returns the state that results in."""
        actor = GroupActor(self.bench) if self.trainer.trainer_settings.traits.grouped else SyntheticActor(self.bench)
        for _ in range(6):
            self.bench.put(actor.play(SPAN) if isinstance(actor, GroupActor) else actor.chunk([20, 17, 3]))
            while self.trainer.advance():
                pass
        assert self.trainer.version > 0
        return self.trainer.state_dict()


def steered(trainer_type: str = "ppo", *, lessons: Lessons | None = None, **hyper: Any) -> Steered:
    """Returns a started trainer."""
    written = {"trainer_type": trainer_type, "hyperparameters": {**WRITTEN[trainer_type], **hyper}, **BLOCKS}
    bench = make_bench(written, CONTINUOUS)
    torch.manual_seed(1)
    trainer = build(bench.context())
    assert isinstance(trainer, RLTrainer)
    trainer.start()
    return Steered(bench, trainer, lessons or Lessons(None, seed=0))


def changeable(trainer_type: str) -> dict[str, Any]:
    """Returns other values of all hyperparameters of a trainer that can change."""
    model = OWN_TRAINERS[trainer_type].settings_model
    return {name: OTHERS[name] for name in model.model_fields if model.is_live(name)}


@pytest.mark.parametrize("without", [frozenset[str](), HIDING], ids=["all", "hidden"])
@pytest.mark.parametrize("trainer_type", WRITTEN)
def test_each_value_that_can_change_is_trained_with(trainer_type: str, without: frozenset[str]) -> None:
    """A trainer whose settings have changed trains bit by bit as one that started with them."""
    others = {name: value for name, value in changeable(trainer_type).items() if name not in without}
    started, changed = steered(trainer_type, **others), steered(trainer_type)
    assert changed.set(**others) == {f"{NAME}.{name}": value for name, value in others.items()}
    assert changed.trainer.trainer_settings == started.trainer.trainer_settings
    assert differences(started.train(), changed.train()) == []


@pytest.mark.parametrize("trainer_type", WRITTEN)
def test_an_undone_change_leaves_no_trace(trainer_type: str) -> None:
    """After `undo`, a run trains bit by bit as one in which nothing was changed."""
    untouched, changed = steered(trainer_type), steered(trainer_type)
    before = changed.trainer.trainer_settings
    changed.set(**changeable(trainer_type), max_steps=77)
    changed.undo()
    assert changed.trainer.trainer_settings == before
    assert changed.steering.state_dict() == untouched.steering.state_dict()
    assert differences(untouched.train(), changed.train()) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"learning_rat": 1}, "there is no setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"xyz": 1}, "there is no setting 'xyz'; these can change: learning_rate, .*, max_steps, evaluation.episodes, target_return"),
        ({"Walker.beta": 1}, "there is no setting 'Walker.beta'"),
        ({"lesson.mass": 1}, "there is no setting 'lesson.mass'"),
        ({"batch_size": 32}, "hyperparameters.batch_size cannot change while the run trains, because networks, buffers"),
        ({"hidden_units": 32}, "network_settings.hidden_units cannot change"),
        ({"extrinsic.gamma": 0.9}, "reward_signals.extrinsic.gamma cannot change"),
        ({"lockstep": "null"}, "lockstep cannot change"),
        ({"learning_rate": -1}, "Continuous: hyperparameters.learning_rate: must be greater than or equal to 0, got '-1'"),
        ({"learning_rate": "fast"}, "hyperparameters.learning_rate: must be a finite number, got 'fast'"),
        ({"num_epoch": 0.5}, "num_epoch: must be a whole number"),
        ({"evaluation.episodes": 0}, "rollcast: evaluation.episodes: must be greater than or equal to 1"),
        ({"learning_rate_schedule": "adaptive"}, "adaptive learning rate .* can neither be set, begun nor ended"),
        ({"beta": 0.1, "learning_rate_warmup": -5}, "learning_rate_warmup"),
        ({"beta": 0.1, f"{NAME}.beta": 0.2}, "one setting is given by two names"),
    ],
)  # fmt: skip
def test_what_cannot_change_is_refused_by_name(values: dict[str, object], said: str) -> None:
    """One line says what is wrong, and nothing has changed."""
    run = steered()
    before = run.trainer.trainer_settings
    with pytest.raises(SettingRefused, match=said) as caught:
        run.set(**values)
    assert "\n" not in caught.value.message
    assert (run.trainer.trainer_settings, run.noted, run.told) == (before, [], [])
    with pytest.raises(SettingRefused, match="nothing to undo"):
        run.undo()


def test_a_change_needs_a_trainer_that_can_take_it_over() -> None:
    """A trainer may refuse what its settings alone allow; one that has ended changes nothing; of several one is named."""
    run = steered("ppo", learning_rate_schedule="adaptive")
    with pytest.raises(SettingRefused, match="adaptive"):
        run.set(learning_rate=1e-4)
    run.set(max_steps=1)
    run.train()
    with pytest.raises(SettingRefused, match="Continuous is not trained now"):
        run.set(max_steps=1000)
    with pytest.raises(SettingRefused, match="before an actor has declared a behavior"):
        run.steering.change(Request(1, RequestKind.SET, {"beta": "1"}), {})
    with pytest.raises(SettingRefused, match=r"several behaviors have 'beta': set Continuous\.beta or Other\.beta"):
        run.steering.change(Request(1, RequestKind.SET, {"beta": "1"}), {NAME: run.trainer, "Other": run.trainer})


def test_changes_are_recorded_and_undone_in_order() -> None:
    """Each request is undone as a whole, the last first; values that are the same already are no change."""
    run = steered()
    assert run.set(target_return=200, **{"evaluation.episodes": 3}) == {
        "target_return": 200.0,
        "evaluation.episodes": 3,
    }
    assert (run.told[-1].target_return, run.told[-1].evaluation.episodes) == (200.0, 3)
    assert run.steering.changed() == {"target_return": 200.0}
    assert run.set(beta=5e-3, target_return="2e2") == {}
    assert run.set(beta=0.1, learning_rate="1e-3") == {f"{NAME}.beta": 0.1, f"{NAME}.learning_rate": 1e-3}
    assert run.undo() == {f"{NAME}.beta": 5e-3, f"{NAME}.learning_rate": 3e-4}
    assert run.undo() == {"target_return": 100.0, "evaluation.episodes": 10}
    assert run.steering.changed() == {}
    assert [(each.name, each.old, each.new, by, is_undo) for each, by, is_undo in run.noted][2:4] == [
        (f"{NAME}.beta", 5e-3, 0.1, "ops", False),
        (f"{NAME}.learning_rate", 3e-4, 1e-3, "ops", False),
    ]
    assert run.noted[-1][0].text == "evaluation.episodes is 10, was 3"


def test_another_start_continues_with_the_changes() -> None:
    """A change is in force after a restart, and can be undone there, unless the run file has another value by then."""
    run = steered()
    run.set(beta=0.1)
    run.set(beta=0.2, learning_rate=1e-3, target_return=200)
    run.set(max_steps=2000)
    state = run.steering.state_dict()
    for found, hyper in (
        ({"beta": 0.2, "learning_rate": 1e-3}, dict[str, Any]()),
        ({"beta": 0.7, "learning_rate": 1e-3}, {"beta": 0.7}),
    ):
        later = steered(**hyper)
        later.steering.load_state_dict(state)
        later.steering.trainer_added(later.trainer)
        later.steering.trainer_added(later.trainer)
        hyperparameters = later.trainer.trainer_settings.hyperparameters.model_dump()
        assert {name: hyperparameters[name] for name in found} == found
        assert (later.trainer.get_max_steps, later.told[-1].target_return) == (2000, 200.0)
        assert later.undo() == {f"{NAME}.max_steps": 1000}
        assert later.undo().get(f"{NAME}.beta") == (None if hyper else 0.1)
    gone = {"groups": [[[["behaviors", NAME, "hyperparameters", "gone"], None, 1]], *state["groups"]]}
    run.steering.load_state_dict(gone)
    run.steering.trainer_added(steered().trainer)
    assert run.steering.state_dict()["groups"] == [[[["rollcast", "target_return"], 100.0, 200.0]]]
    replaced = run.another(target_return=300.0)
    replaced.load_state_dict(state)
    assert replaced.changed() == {}


@pytest.mark.parametrize(
    "groups",
    [[[["x", 1, 2]]], [[[["a"], 1, 2]]], [[[["a", 3], 1, 2]]], [[[["a", "b"], [1], 2]]], [[[["a", "b"]]]], [5]],
)
def test_a_damaged_state_is_refused(groups: object) -> None:
    """What was not saved by a run is an error of the kinds that a restart reports."""
    with pytest.raises((TypeError, ValueError)):
        steered().another().load_state_dict({"groups": groups})


def test_a_lesson_is_begun_and_left() -> None:
    """A lesson is named, or numbered from 1; the next episodes belong to it, and `undo` returns to the one before."""
    lessons = Lessons(parameters(mass=curriculum(1, 2, 3, behavior=NAME, threshold=5, require_reset=True)), seed=0)
    run = steered(lessons=lessons)
    assert run.set(**{"lesson.mass": "lesson2", "beta": 0.1}) == {"lesson.mass": 3, f"{NAME}.beta": 0.1}
    assert (lessons.numbers(), lessons.revision) == ({"mass": 2}, 2)
    (change,) = lessons.take_changes()
    assert (change.lesson, change.completed, change.require_reset) == ("lesson2", "lesson0", True)
    assert run.set(**{"lesson.mass": 2}) == {"lesson.mass": 2}
    assert run.undo() == {"lesson.mass": 3}
    assert lessons.numbers() == {"mass": 2}
    with pytest.raises(SettingRefused, match="no lesson '4'; give lesson0, lesson1, lesson2, or 1 to 3"):
        run.set(**{"lesson.mass": 4})
    with pytest.raises(SettingRefused, match=r"did you mean 'lesson.mass'"):
        run.set(**{"lesson.mas": 1})
