"""Tests the companions of a behavior in run files."""

from __future__ import annotations

import pytest

from learner.shared.exits import UserError
from learner.shared.settings.by_name import settings_by_name
from learner.shared.settings.load import effective_document, load_run_options, to_yaml
from learner.shared.settings.rules import missing_code, sources_of_code, unsupported
from tests.learner.training.trainers.companions import toys

from .conftest import WriteRun

RUN = """
behaviors:
  A:
    trainer_type: ppo
    hyperparameters: {{batch_size: 64, buffer_size: 256}}
    companions:
      "{name}": {settings}
    data_buffers: {{small: {{max_steps: 500, max_bytes: 1 MiB}}}}
rollcast: {service}
"""


def run_of(settings: str = "{}", *, name: str = toys.WORLD, service: str = "{}") -> str:
    """Returns a run file."""
    return RUN.format(name=name, settings=settings, service=service)


def test_companions_and_data_are_settings(write_run: WriteRun) -> None:
    """A companion has its own settings beside those of all, and the written document reads back the same."""
    path = write_run(run_of("{data: small, min_buffer_size: 1e2, units: 5}"))
    loaded = load_run_options(path, environ={})
    settings = loaded.options.behaviors["A"]
    companion = settings.companions.active()[toys.WORLD]
    assert companion.model_dump() == {
        "data": "small",
        "min_buffer_size": 100,
        "min_new_data_count": 256,
        "max_share": 0.2,
        "learning_rate": 3e-4,
        "steps": 4,
        "units": 5,
    }
    assert {name: (each.max_steps, each.max_bytes) for name, each in settings.buffers.items()} == {
        "experience": (100_000, 2**26),
        "small": (500, 2**20),
    }
    again = load_run_options(write_run(to_yaml(effective_document(loaded))), environ={})
    assert again.options.behaviors["A"].model_dump() == settings.model_dump()
    assert list(missing_code(loaded.options, {})) == []
    (code,) = sources_of_code(loaded.options)
    assert (code["setting"], code["name"]) == (f"behaviors.A.companions.{toys.WORLD}", toys.WORLD)
    assert code["file"].endswith("toys.py")


def test_programs_set_them_by_name(write_run: WriteRun) -> None:
    """What a program passes as ``companions`` becomes settings of every behavior."""
    words = [f"{path}={value}" for path, value in settings_by_name("companions", {toys.WIDE: {"units": 7}})]
    loaded = load_run_options(write_run(run_of()), set_items=words, environ={})
    active = loaded.options.behaviors["A"].companions.active()
    assert (list(active), active[toys.WIDE].units) == ([toys.WIDE, toys.WORLD], 7)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (run_of("{unit: 5}"), r"unknown key 'unit'; did you mean 'units'"),
        (run_of("{data: large}"), r"data is 'large', which is no data buffer \(known: experience, small\)"),
        (run_of("{max_share: 0.95}"), r"max_share"),
        (run_of("{min_new_data_count: 0}"), r"min_new_data_count"),
        (run_of("null"), r"is empty; write {} for default settings"),
        (
            run_of(name="no_such_module:Gone"),
            r"behaviors\.A\.companions\.no_such_module:Gone.*cannot be imported: .*No module named 'no_such_module'",
        ),
        (run_of(name=toys.SURPRISE), r"a class that does not extend \S+\.CompanionTrainer"),
        (run_of(name="world"), r"unknown key 'world'"),
        (run_of(name="_world"), r"unknown key '_world'"),
    ],
)
def test_mistakes_are_one_line(write_run: WriteRun, text: str, told: str) -> None:
    """The line of the run file, the value, and what to do."""
    with pytest.raises(UserError, match=told):
        load_run_options(write_run(text), environ={})


def test_shares_add_up(write_run: WriteRun) -> None:
    """All companions together leave time for the policy."""
    both = f'{{max_share: 0.5}}\n      "{toys.WIDE}": {{max_share: 0.5}}'
    with pytest.raises(UserError, match=r"max_share of all companions together is 1, more than 0\.9"):
        load_run_options(write_run(run_of(both)), environ={})


def test_several_trainer_processes_have_none(write_run: WriteRun) -> None:
    """The line names the block, and what to do."""
    loaded = load_run_options(write_run(run_of(service="{trainers: 2}")), environ={})
    assert unsupported(loaded.options) == [
        "behaviors.A.companions: companions train in one process; set rollcast.trainers to 1, or take them out"
    ]


@pytest.mark.parametrize(("size", "warned"), [(2560, False), (2561, True)])
def test_one_that_never_trains_in_lock_step_is_told(write_run: WriteRun, size: int, warned: bool) -> None:
    """Lock-step empties the data buffers with each checkpoint: a companion that needs more gets a warning."""
    service = "{lockstep: {checkpoint_updates: 10}}"
    loaded = load_run_options(write_run(run_of(f"{{min_buffer_size: {size}}}", service=service)), environ={})
    assert any("so it never trains: lower it" in line for line in loaded.warnings) is warned
