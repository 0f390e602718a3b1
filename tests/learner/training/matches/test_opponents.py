"""Tests the opponents of evaluations: their policies, who can play them, and the ratings over steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rollcast.chunks import GameRecord
from structlog.testing import capture_logs

from learner.link.matches import match_numbers
from learner.link.to_front import StartMatch, ToFront
from learner.link.to_trainers import Actor, Actors
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.policies import PolicyKey, StoredPolicy
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.options import RunOptions
from learner.shared.settings.service import EvaluationSettings, ServiceSettings
from learner.training.curriculum.lessons import no_lessons
from learner.training.matches.during_training import RETRY_SECONDS, EvaluationManager
from learner.training.matches.game_records import GameRecords
from learner.training.matches.opponents import EvaluationOpponents, numbers_of, report_games
from learner.training.matches.result import EvaluationResult
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.roster import Roster
from tests.learner.service.ingest.parts import NAME, Parts
from tests.learner.starts import SETTINGS
from tests.learner.training.matches.test_round import DRAWN, LOST, WON, players, report
from tests.learner.training.matches.test_tournament import models
from tests.learner.training.trainers.in_process import Bench


def trainer() -> PPOTrainer:
    """Returns a started trainer of a behavior with self-play."""
    parts = Parts(RunOptions.model_validate({"behaviors": {NAME: {**SETTINGS, "self_play": {}}}}))
    parts.declared(parts.open("a").session)
    bench = Bench(parts.link, parts.behaviors, parts.behaviors.all()[0], parts.ledger, StatsReporter(NAME))
    made = PPOTrainer(bench.context())
    made.start()
    return made


def opponents_of(
    folder: Path, *named: str, state: dict[str, Any] | None = None, meters: RunMeters | None = None
) -> EvaluationOpponents:
    """Returns the opponents of a run, which continues from a state."""
    run = folder / "run"
    run.mkdir(exist_ok=True)
    settings = EvaluationSettings(interval_steps=100, episodes=4, opponents=named)
    made = EvaluationOpponents(settings, run, SnapshotFiles(run), GameRecords(run, meters or RunMeters()))
    made.load_state_dict(state or {})
    return made


def evaluated(found: EvaluationOpponents, by: PPOTrainer, *results: Any) -> EvaluationResult:
    """Plays an evaluation in which each match has the same results."""
    found.prepare({NAME: by})
    playing = found.begin({NAME: by}, match_numbers(1, evaluates=True), episodes=4, is_deterministic=True)
    newest = PolicyKey(by.published.generation, by.published.version, by.published.sha256)
    while playing.missing:
        (match,) = playing.deal(players("a"))
        seat = match.seats[0 if match.seats[0].policy == newest else 1]
        report(playing, match, *results, team=seat.team)
    result = EvaluationResult.of(NAME, playing.played(NAME), step=1, version=1, is_deterministic=True)
    return found.rated(result, playing)


@pytest.fixture(autouse=True)
def behavior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the helpers of the other module play this behavior."""
    monkeypatch.setattr("tests.learner.training.matches.test_round.NAME", NAME)


def test_ratings_follow_the_policies_and_last(tmp_path: Path) -> None:
    """A policy that wins is rated above one that loses, also in a run that was resumed; the first opponent is the origin."""
    by = trainer()
    (model,) = models(tmp_path, 1)
    named = "random", str(model.path)
    found = opponents_of(tmp_path, *named)
    found.trainer_added(by)
    assert found.names == ("random", "model-0")
    weak = evaluated(found, by, LOST, LOST)
    again = opponents_of(tmp_path, *named, state=found.state_dict())
    again.trainer_added(by)
    strong = evaluated(again, by, WON, DRAWN)
    assert weak.rating is not None
    assert strong.rating is not None
    assert weak.rating < -50 < 50 < strong.rating
    assert [each.score for each in strong.opponents] == [0.75, 0.75]
    numbers = numbers_of(strong)
    assert numbers["evaluation_won_second/random"] == numbers["evaluation_drawn_first/model-0"] == 1
    assert numbers["evaluation_lost_first/random"] == 0
    stats = StatsReporter(NAME)
    report_games(strong, stats)
    assert stats.value("Evaluation/Rating") == strong.rating
    assert stats.value("Evaluation/Against model-0/Second Seat Draws") == 0.5


def test_games_are_recorded_under_the_names_of_the_players(tmp_path: Path) -> None:
    """The policy has the step at which it was measured, and either seat."""
    by = trainer()
    meters = RunMeters()
    found = opponents_of(tmp_path, "random", meters=meters)
    found.trainer_added(by)
    found.prepare({NAME: by})
    playing = found.begin({NAME: by}, match_numbers(1, evaluates=True), episodes=4, is_deterministic=True)
    shown = []
    while playing.missing:
        (match,) = playing.deal(players("a"))
        seat = 0 if match.seats[0].is_deterministic else 1
        record = GameRecord(match.number, "hex", match.seats[0].team, WON, ("a1",))
        report(playing, match, WON, WON, team=match.seats[seat].team, record=record)
        shown.append(meters.behavior(NAME).counts().game)
    assert [(game.first, game.second) for game in shown if game] == [("step 0", "random"), ("random", "step 0")]
    files = sorted((tmp_path / "run" / NAME / "games").iterdir())
    assert [path.name for path in files] == ["game-000001.txt", "game-000002.txt"]


def test_self_play_keeps_the_policies_of_opponents(tmp_path: Path) -> None:
    """What self-play deletes of its own snapshots leaves those that evaluations play."""
    by = trainer()
    found = opponents_of(tmp_path, "random", str(models(tmp_path, 1)[0].path))
    found.trainer_added(by)
    found.prepare({NAME: by})
    playing = found.begin({NAME: by}, match_numbers(1, evaluates=True), episodes=4, is_deterministic=True)
    files = found._snapshots
    assert len(files.keys(NAME)) == 2
    files.keep(NAME, ())
    assert len(files.keys(NAME)) == 2
    assert playing.episodes == 8
    assert sorted((key.generation, key.version) for key in files.keys(NAME)) == [(0, 0), (0, 1)]


def test_a_full_disk_puts_an_evaluation_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation whose random player cannot be written is tried again after a minute; the run continues."""
    by, now, sent = trainer(), [100.0], list[ToFront]()
    found = opponents_of(tmp_path, "random")
    found.trainer_added(by)
    roster = Roster()
    roster.newest = Actors((Actor("a", "a", 0, is_connected=True, agents={}, teams={found._index: (0, 1)}),))
    nothing: Any = None  # no evaluation ends
    evaluator = EvaluationManager(
        ServiceSettings(),
        nothing,
        roster,
        sent.append,
        found,
        generation=1,
        lessons=no_lessons(),
        meters=RunMeters(),
        on_result=nothing,
        on_saved=nothing,
        on_not_saved=nothing,
        clock=lambda: now[0],
    )

    def full(_files: SnapshotFiles, _policy: StoredPolicy) -> PolicyKey:
        raise WriteFailed(tmp_path, OSError(28, "No space left on device"))

    evaluator.request()
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(SnapshotFiles, "write", full)
        evaluator.after_turn({NAME: by})
        evaluator.after_turn({NAME: by})
    assert [line["event"] for line in logs] == ["evaluation_put_off"]
    assert (evaluator.is_running, sent) == (False, [])
    now[0] += RETRY_SECONDS
    evaluator.after_turn({NAME: by})
    assert evaluator.is_running
    assert [type(message) for message in sent] == [StartMatch]


def test_missing_opponents(tmp_path: Path) -> None:
    """A checkpoint of the run itself may be gone; anything else that cannot play ends the run with one line."""
    by = trainer()
    found = opponents_of(tmp_path, "random", "@5")
    with capture_logs() as logs:
        found.trainer_added(by)
    assert found.names == ("random",)
    assert [line["opponent"] for line in logs if line["event"] == "opponent_left_out"] == ["@5"]
    with pytest.raises(UserError, match=r"rollcast\.evaluation\.opponents: player 'gone\.onnx'") as caught:
        opponents_of(tmp_path, "gone.onnx").trainer_added(by)
    assert caught.value.exit_code is ExitCode.USAGE


def test_only_actors_with_two_teams_play(tmp_path: Path) -> None:
    """Actors with one team, another behavior, or a script that plays all seats are never borrowed."""
    found = opponents_of(tmp_path, "random")
    found.trainer_added(trainer())

    def actor(name: str, teams: Mapping[int, tuple[int, ...]], **more: Any) -> Actor:
        return Actor(name, name, 0, is_connected=True, agents={}, teams=teams, **more)

    index = found._index
    two = {index: (0, 1)}
    good = actor("good", two), actor("scripted", two, opponent="a:b", opponent_by_seat=True)
    bad = (
        actor("one", {index: (0,)}),
        actor("more", {**two, index + 1: (0,)}),
        actor("old", two, opponent="a:b"),
        actor("new", {}),
    )
    with capture_logs() as logs:
        fitting = [each.session_id for each in found.present([*bad, *good], {index: NAME})]
        assert fitting == ["good", "scripted"]
        assert found.present(bad, {index: NAME}) == []
        assert not logs
        for _ in range(2):
            found.warn(bad, [NAME])
    assert [line["event"] for line in logs] == ["no_actor_plays_opponents"]
