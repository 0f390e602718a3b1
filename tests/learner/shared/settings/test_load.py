"""Tests loading a run, and resolved settings as documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.shared.exits import UserError
from learner.shared.settings.load import MASK, effective_document, load_run_options, to_yaml
from learner.shared.settings.rules import endless_lessons

from .conftest import WriteRun


def test_no_file_runs_the_defaults_with_a_warning() -> None:
    """Without a run file any behavior is trained with PPO, with a warning."""
    loaded = load_run_options(None)
    assert loaded.options.settings_for("Any").trainer_type == "ppo"
    (warning,) = loaded.warnings
    assert "every behavior that actors declare" in warning
    assert "rollcast serve RUN.yaml" in warning
    assert set(loaded.sources.values()) == {"default"}


def test_sources_tell_inherited_from_written_from_derived(write_run: WriteRun) -> None:
    """Each value of a behavior has its source: inherited, written or derived."""
    sources = load_run_options(
        write_run("""
        default_settings:
          time_horizon: 32
        behaviors:
          A:
            trainer_type: ppo
            max_steps: 1000
            even_checkpoints: true
        environment_parameters:
          mass: 3
        """)
    ).sources
    assert sources["default_settings.time_horizon"] == "yaml"
    assert sources["behaviors.A.time_horizon"] == "default_settings"
    assert sources["behaviors.A.max_steps"] == "yaml"
    assert sources["behaviors.A.checkpoint_interval"] == "derived"
    assert sources["behaviors.A.summary_freq"] == "default"
    assert sources["environment_parameters.mass.curriculum"] == "yaml"
    assert sources["debug"] == "default"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rollcast: {reflection: {}}", "rollcast.reflection: must be true or false"),
        ("rollcast: {max_sessions: 0}", "rollcast.max_sessions: must be greater than or equal to 1, got 0"),
        ("rollcast: {address: '10.0.0.1:1'}", "--insecure"),
        ("checkpoint_settings: {run_id: ../up}", "checkpoint_settings.run_id: is not a valid folder name"),
    ],
)
def test_wrong_values_have_their_line(write_run: WriteRun, text: str, expected: str) -> None:
    """The message has line, path, rule and value."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(f"behaviors: {{A: }}\n{text}\n"))
    shown = [str(caught.value), *caught.value.details]
    assert any(expected in line and "run.yaml:2: " in line for line in shown)


def test_a_long_value_is_cut_in_messages(write_run: WriteRun) -> None:
    """A long value is cut in messages."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(f"behaviors: {{A: }}\nrollcast: {{reflection: {'x' * 5000}}}\n"))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("behaviors", "told"),
    [
        ("behaviors: {Walker: }", ["no behavior 'Waker'; did you mean 'Walker'?"]),
        ("behaviors: {B: , A: }", ["no behavior 'Waker'; it lists A, B"]),
        ("behaviors: {Waker: }", []),
        ("default_settings: {}", []),
        ("default_settings: {}\nbehaviors: {Walker: }", []),
    ],
)
def test_lessons_that_nothing_can_end_are_found(write_run: WriteRun, behaviors: str, told: list[str]) -> None:
    """A lesson whose behavior cannot exist is reported with its place."""
    criteria = "{behavior: Waker, threshold: 5}"
    lessons = f"[{{name: easy, value: 1, completion_criteria: {criteria}}}, {{name: hard, value: 2}}]"
    path = write_run(f"{behaviors}\nenvironment_parameters: {{mass: {{curriculum: {lessons}}}}}\n")
    found = list(endless_lessons(load_run_options(path).options))
    assert [line.partition("lists ")[2] for line in found] == told
    assert all("environment_parameters.mass.curriculum.0.completion_criteria.behavior" in line for line in found)
    assert all("lesson 'easy' never ends" in line for line in found)


def test_a_lesson_by_evaluations_needs_evaluations(write_run: WriteRun) -> None:
    """Without an interval nothing is evaluated, and the line says what to set."""
    criteria = "{behavior: A, measure: evaluation, threshold: 5}"
    lessons = f"[{{name: easy, value: 1, completion_criteria: {criteria}}}, {{name: hard, value: 2}}]"
    text = f"behaviors: {{A: }}\nenvironment_parameters: {{mass: {{curriculum: {lessons}}}}}\n"
    (line,) = endless_lessons(load_run_options(write_run(text)).options)
    assert line.endswith("nothing is evaluated; set rollcast.evaluation.interval_steps")
    text += "rollcast: {evaluation: {interval_steps: 1000}}\n"
    assert list(endless_lessons(load_run_options(write_run(text)).options)) == []


def test_loading_changes_nothing_for_the_next_time(write_run: WriteRun) -> None:
    """Two loads of a file do not affect each other."""
    path = write_run("behaviors: {A: }\n")
    load_run_options(path, cli={"seed": 3}, set_items=["behaviors.A.max_steps=3"])
    assert load_run_options(path).options.behaviors["A"].max_steps == 500000


RUN = """
default_settings:
  trainer_type: ppo
  hyperparameters: {learning_rate: 1e-3, learning_rate_schedule: constant}
behaviors:
  Ball:
    network_settings: {hidden_units: 64, memory: {}}
    reward_signals: {curiosity: {strength: 0.02, encoding_size: 32}}
    max_steps: 2.0e5
    self_play: {save_steps: 1000}
environment_parameters:
  gravity: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[1, 2], [4, 5]]}}
checkpoint_settings: {run_id: first}
rollcast: {target_return: 100}
"""


def test_what_is_written_into_the_run_folder_reads_back_the_same(write_run: WriteRun, tmp_path: Path) -> None:
    """configuration.yaml of a run loads as the same run."""
    loaded = load_run_options(write_run(RUN))
    written = tmp_path / "configuration.yaml"
    written.write_text(to_yaml(effective_document(loaded)))
    again = load_run_options(written)
    assert again.options == loaded.options
    assert again.warnings == ()


def test_values_from_the_secrets_directory_are_masked(write_run: WriteRun, tmp_path: Path) -> None:
    """Secret values are never written."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "ROLLCAST_ADDRESS").write_text("127.0.0.1:5999")
    loaded = load_run_options(write_run(RUN), environ={"ROLLCAST_SECRETS_DIR": str(secrets)})
    assert loaded.options.rollcast.address == "127.0.0.1:5999"
    assert MASK in to_yaml(effective_document(loaded))
    assert "5999" not in to_yaml(effective_document(loaded))
