"""Tests self-play between the turns of the trainers: snapshots, teams, matches, ratings, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rollcast.chunks import GameResult
from rollcast.enums import AssignmentRole, GroupEnd, SegmentEnd
from structlog.testing import capture_logs

from learner.link.matches import Match, Seat
from learner.link.to_front import StartMatch, ToFront
from learner.service.ingest.session import ActorSession
from learner.shared.exits import UserError
from learner.shared.observe.stats import StatsReporter
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.options import RunOptions
from learner.training.curriculum.lessons import Lessons, no_lessons
from learner.training.export.unity import render_unity
from learner.training.matches.league import MAX_SCRIPTS, OTHERS
from learner.training.matches.self_play import SelfPlayManager, TeamQueue
from learner.training.matches.self_play_ratings import ELO
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.roster import Roster
from tests.learner.service.calls.samples import make_spec
from tests.learner.service.ingest.parts import NAME, Parts
from tests.learner.starts import SETTINGS
from tests.learner.training.curriculum.curricula import curriculum, parameters
from tests.learner.training.matches.games import reported
from tests.learner.training.trainers.in_process import Bench, CartPoleActor, Published

LEARN, OPPONENT = AssignmentRole.LEARN, AssignmentRole.OPPONENT
SELF_PLAY = {"save_steps": 256, "team_change": 1024, "swap_steps": 100, "window": 3}


class Stage:
    """A start of a learner with a trainer, its self-play and two actors with two teams."""

    def __init__(
        self, folder: Path, *, generation: int = 1, actors: int = 2, lessons: Lessons | None = None, **settings: Any
    ) -> None:
        behaviors = {NAME: {**SETTINGS, "self_play": {**SELF_PLAY, **settings}}}
        options = RunOptions.model_validate({"behaviors": behaviors, "rollcast": {"target_rating": 1203.0}})
        self.parts = Parts(options, generation=generation)
        self.published = Published()
        self.matches: list[Match] = []
        self.elos: dict[str, float] = {}
        self.reached: list[int] = []
        self.roster = Roster()
        self.lessons = lessons or no_lessons()
        self.files = SnapshotFiles(folder)
        self.sessions = [self.join(f"actor {number}") for number in range(actors)]
        self.manager = SelfPlayManager(
            options,
            self.roster,
            self._take,
            self.files,
            seed=4,
            generation=generation,
            on_elo=self.elos.__setitem__,
            on_target=lambda: self.reached.append(self.trainer.version),
            lessons=self.lessons,
            clock=lambda: 0.0,
        )
        self.ghosts = 0

    def join(self, name: str, opponent: str = "", teams: Sequence[int] = (0, 1)) -> ActorSession:
        """Lets an actor join, whose opponents a script may play."""
        session = self.parts.open(name).session
        session.opponent = opponent
        for team in teams:
            self.parts.declared(session, team=team)
        session.is_connected = True
        return session

    def begin(self, state: dict[str, Any] | None = None) -> None:
        """Makes the trainer, with a saved state if there is one, and takes a turn."""
        parts = self.parts
        behavior = parts.behaviors.all()[0]
        bench = Bench(
            parts.link, parts.behaviors, behavior, parts.ledger, StatsReporter(NAME), published=self.published
        )
        self.trainer = PPOTrainer(bench.context(lessons=self.lessons))
        if state is not None:
            self.manager.load_state_dict(state["self_play"])
        self.manager.trainer_added(self.trainer)
        if state is not None:
            self.trainer.load_state_dict(state["trainer"])  # by the part that comes after self-play
        self.trainer.start()
        self.actor = CartPoleActor(bench, environments=2)
        self.turn()

    def state(self) -> dict[str, Any]:
        """Returns what a run state keeps."""
        return {"self_play": self.manager.state_dict(), "trainer": self.trainer.state_dict()}

    def turn(self, updates: int = 0) -> list[Match]:
        """Trains, lets self-play look, and returns the matches that it begins."""
        for _ in range(updates):
            end = self.trainer.version + 1
            while self.trainer.version < end:
                self.actor.run(64)
                self.trainer.advance()
        self.roster.newest = self.parts.sessions.actors()
        before = len(self.matches)
        self.manager.after_turn({NAME: self.trainer})
        return self.matches[before:]

    def report(self, match: Match, *results: GameResult, ghosts: int = 0, **columns: Any) -> None:
        """Reports games of the learning seat."""
        seat = next((seat for seat in match.seats if seat.role is LEARN), match.seats[0])
        self.ghosts += ghosts
        self.manager.received(NAME, reported(match, seat, results, ghost_steps=self.ghosts, **columns))

    def _take(self, message: ToFront) -> None:
        assert isinstance(message, StartMatch)
        self.matches.append(message.match)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Returns a stage whose trainer has begun."""
    stage = Stage(tmp_path)
    stage.begin()
    return stage


def roles(match: Match) -> list[AssignmentRole]:
    """Returns the roles of the teams."""
    return [seat.role for seat in match.seats]


def test_every_actor_gets_a_match(stage: Stage) -> None:
    """At the start the first team learns in each actor, and the untrained policy is in the pool."""
    assert [match.session_id for match in stage.matches] == [session.session_id for session in stage.sessions]
    assert all(roles(match) == [LEARN, OPPONENT] for match in stage.matches)
    assert len({match.number for match in stage.matches}) == 2
    (key,) = stage.files.keys(NAME)
    assert (key.generation, key.version) == (1, 0)
    assert stage.turn() == []
    newcomer = stage.join("late")
    (match,) = stage.turn()
    assert match.session_id == newcomer.session_id


def test_the_pool_holds_the_newest_files(stage: Stage) -> None:
    """A snapshot is saved per interval; of older ones no file stays that nothing names."""
    for _ in range(9):
        stage.turn(updates=1)
    kept = {key.version for key in stage.files.keys(NAME)}
    pinned = {seat.policy.version for match in stage.matches[-2:] for seat in match.seats if seat.policy}
    assert kept == {7, 8, 9} | pinned
    assert stage.trainer.numbers["pool_snapshots"] == 3
    assert stage.elos == {NAME: 1200.0}


def test_files_of_the_last_run_states_stay(stage: Stage) -> None:
    """The files that the two newest run states name stay for a restart, although the pool has newer ones."""
    stage.turn(updates=1)
    stage.manager.state_dict()
    for _ in range(6):
        stage.turn(updates=1)
    assert {0, 1} <= {key.version for key in stage.files.keys(NAME)}
    stage.manager.state_dict()
    stage.turn(updates=1)
    stage.manager.state_dict()
    stage.turn()
    assert not {0, 1} & {key.version for key in stage.files.keys(NAME)}


def test_opponents_change_with_the_ghost_steps_of_all(stage: Stage) -> None:
    """After `swap_steps` ghost steps over the fleet every actor draws its own opponent."""
    first, second = stage.matches
    stage.report(first, ghosts=60)
    assert stage.turn() == []
    stage.ghosts = 0
    stage.report(second, ghosts=60)
    assert len(stage.turn()) == 2
    stage.report(second)
    assert stage.turn() == []
    assert stage.trainer.numbers["ghost_steps"] == 120


def test_teams_take_turns(stage: Stage) -> None:
    """After `team_change` trained steps the other team learns, with new matches for all."""
    for _ in range(3):
        assert stage.turn(updates=1) == []
    matches = stage.turn(updates=1)
    assert [roles(match) for match in matches] == [[OPPONENT, LEARN]] * 2
    assert stage.trainer.numbers["learning_team"] == 1


def rated(stage: Stage) -> tuple[Match, list[float]]:
    """Returns a match against a snapshot, and the ratings."""
    while True:
        stage.report(stage.matches[0], ghosts=100)
        for match in stage.turn():
            assert {seat.policy for seat in match.seats if seat.policy} <= stage.files.keys(NAME)
            if any(seat.policy for seat in match.seats):
                return match, stage.manager.state_dict()["leagues"][NAME]["elo"]["values"]


def test_ratings_follow_the_results(stage: Stage) -> None:
    """Won games raise the rating, each as ML-Agents counts; interrupted ones count only as games."""
    match, _ = rated(stage)
    stage.report(match, GameResult.WON, GameResult.DRAWN, GameResult.LOST, GameResult.WON)
    stage.report(match, GameResult.WON, end=[SegmentEnd.TRUNCATED])
    stage.report(match, GameResult.UNKNOWN)
    elo = 1200.0
    slot = 1200.0
    for result in (1.0, 0.5, 0.0, 1.0):
        change = result - 1 / (1 + 10 ** ((slot - elo) / 400))
        elo, slot = elo + change, slot - change
    assert stage.trainer.numbers["elo"] == pytest.approx(elo)
    assert stage.trainer.stats_reporter.value("Self-play/ELO") is not None
    numbers = stage.trainer.numbers
    assert [numbers[f"games_{name}/0"] for name in ("won", "drawn", "lost")] == [3.0, 1.0, 1.0]
    stats = stage.trainer.stats_reporter
    assert [stats.value(f"Self-play/Team 0/{name}") for name in ("Wins", "Draws", "Losses")] == [0.6, 0.2, 0.2]
    assert numbers["game_steps"] == stats.value("Self-play/Game Length") == 10.0
    assert (
        numbers["self_play_rating"] == stats.value("Self-play/Rating") == pytest.approx(1200.0)
    )  # of no games, at the start
    assert numbers["self_play_rating_interval"] == stats.value("Self-play/Rating Interval")


def test_games_that_are_not_of_the_session_are_not_rated(stage: Stage) -> None:
    """Records of unknown matches and of opponents change nothing."""
    match, before = rated(stage)
    stage.report(Match(match.number + 10**6, match.session_id, match.seats), GameResult.WON)
    stage.report(Match(match.number, "another", match.seats), GameResult.WON)
    stage.report(Match(match.number, match.session_id, (Seat(NAME, 1, OPPONENT),)), GameResult.WON)
    assert stage.manager.state_dict()["leagues"][NAME]["elo"]["values"] == before


def test_the_run_ends_at_the_target(stage: Stage) -> None:
    """The run ends after the turn in which the ELO reaches its target."""
    match, _ = rated(stage)
    for wins in (5, 5):
        assert stage.reached == []
        stage.report(match, *[GameResult.WON] * wins)
        stage.turn()
    assert stage.reached == [0]


def test_a_lesson_ends_at_a_rating(tmp_path: Path) -> None:
    """A lesson can measure the ELO; before the last lesson the target of the run does not count."""
    measure = {"measure": "statistic", "statistic": ELO, "behavior": NAME}
    written = curriculum(5, 9, threshold=1204, min_lesson_length=2, **measure)
    stage = Stage(tmp_path, lessons=Lessons(parameters(board_size=written), seed=0))
    stage.begin()
    match, _ = rated(stage)
    stage.report(match, *[GameResult.WON] * 7)
    stage.turn()
    assert stage.trainer.numbers["elo"] > 1203.0
    assert (stage.lessons.take_changes(), stage.reached) == ([], [])
    stage.report(match, *[GameResult.WON] * 4)
    (change,) = stage.lessons.take_changes()
    assert (change.parameter, change.lesson) == ("board_size", "lesson1")
    stage.turn()
    assert stage.reached == [0]


def test_a_game_of_a_group_counts_once(stage: Stage) -> None:
    """Records of group mates are one game; each counts for ML-Agents' rating, but for those that end before the group."""
    match, _ = rated(stage)
    won = (GameResult.WON, GameResult.WON)
    for episode in (1, 2):
        stage.report(match, *won, group=[7, 7], group_episode=[episode] * 2, group_end=[GroupEnd.TERMINATED] * 2)
    assert stage.trainer.numbers["games_won/0"] == 2.0
    assert stage.trainer.numbers["elo"] > 1201.5
    elo = stage.trainer.numbers["elo"]
    stage.report(match, GameResult.LOST, group=[7], group_episode=[3])
    stage.report(match, GameResult.WON, group=[7], group_episode=[3], group_end=[GroupEnd.TERMINATED])
    assert stage.trainer.numbers["games_won/0"] == 3.0
    assert stage.trainer.numbers["games_lost/0"] == 0.0
    assert stage.trainer.numbers["elo"] > elo


def test_a_restart_continues(tmp_path: Path) -> None:
    """After a restart pool, ratings, team, counters and draws are those of the run state."""
    first = Stage(tmp_path)
    first.begin()
    for _ in range(5):
        first.turn(updates=1)
    match, _ = rated(first)
    first.report(match, GameResult.WON, ghosts=30)
    state = first.state()
    second = Stage(tmp_path, generation=2)
    second.begin(state)
    assert {roles(match)[1] for match in second.matches} == {LEARN}
    assert second.state()["self_play"].keys() == state["self_play"].keys()
    # Each draw has a generator of its own, by the seed and its number.
    drawn = [each["self_play"]["random"]["drawn"] for each in (second.state(), state)]
    assert drawn[0] == drawn[1] + len(second.matches)
    for part in ("queue", "strengths"):
        assert second.state()["self_play"][part] == state["self_play"][part]
    league, before = (each["self_play"]["leagues"][NAME] for each in (second.state(), state))
    assert {**league, "swaps": 0} == {**before, "swaps": 0}
    assert min(match.number for match in second.matches) > max(match.number for match in first.matches)
    assert {key.version for key in second.files.keys(NAME)} >= {3, 4, 5}


@pytest.mark.parametrize(("teams", "warnings"), [((0, 1), 0), ((0,), 1)])
def test_a_run_without_opponents_is_told_of(tmp_path: Path, teams: tuple[int, ...], warnings: int) -> None:
    """With one team alone there is one warning, which says what to do."""
    stage = Stage(tmp_path, actors=0)
    stage.join("actor", teams=teams)
    with capture_logs() as logs:
        stage.begin()
        for _ in range(3):
            stage.turn(updates=1)
    found = [entry for entry in logs if entry["event"] == "self_play_without_opponents"]
    assert len(found) == warnings
    assert all("--team 'player_1=1'" in entry["action"] for entry in found)


def test_lost_files_leave_the_pool(tmp_path: Path) -> None:
    """A snapshot without a file is left out with a warning, and the run continues."""
    first = Stage(tmp_path)
    first.begin()
    first.turn(updates=1)
    state = first.state()
    first.files.keep(NAME, {key for key in first.files.keys(NAME) if key.version == 1})
    second = Stage(tmp_path, generation=2)
    with capture_logs() as logs:
        second.begin(state)
    assert [entry["versions"] for entry in logs if entry["event"] == "snapshots_lost"] == [[0]]
    assert second.trainer.numbers["pool_snapshots"] == 1


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    """A state with impossible values raises an error that a run state reports in one line."""
    first = Stage(tmp_path)
    first.begin()
    state = first.manager.state_dict()
    changes: tuple[dict[str, Any], ...] = (
        {"queue": {}},
        {"leagues": {NAME: {}}},
        {"leagues": {NAME: {**state["leagues"][NAME], "fixed": {"opponents": [["a", 1]], "scripts": []}}}},
        {"leagues": {NAME: {**state["leagues"][NAME], "fixed": {"opponents": [], "scripts": [3]}}}},
        {"ghosts": [["a", "b", -1]]},
        {"strengths": {"rows": 3}},
    )
    for change in changes:
        with pytest.raises((KeyError, TypeError, ValueError)):
            Stage(tmp_path).manager.load_state_dict({**state, **change})


def exported(folder: Path, size: int = 4) -> Path:
    """Exports an untrained policy and returns the file."""
    path = folder / f"rival-{size}.onnx"
    path.write_bytes(render_unity(PolicyNetwork(make_spec(NAME, size), NetworkSettings(hidden_units=8))))
    return path


def test_frozen_opponents_stay(tmp_path: Path) -> None:
    """A frozen opponent is a file that never leaves; its games, ratings and draws continue after a restart."""
    frozen: dict[str, Any] = {"frozen_opponents": {"rival": str(exported(tmp_path))}, "frozen_opponents_ratio": 1.0}
    first = Stage(tmp_path, **frozen)
    first.begin()
    (key,) = (key for key in first.files.keys(NAME) if key.generation == 0)
    for _ in range(8):
        first.turn(updates=1)
        first.report(first.matches[-1], ghosts=100)
        for match in first.turn():
            assert {seat.policy for seat in match.seats if seat.role is OPPONENT} == {key}
    first.report(first.matches[-1], GameResult.WON, GameResult.WON, GameResult.LOST, end=[SegmentEnd.TERMINATED] * 3)
    numbers = first.trainer.numbers
    assert [numbers[f"games_{name}_against/rival"] for name in ("won", "drawn", "lost")] == [2.0, 0.0, 1.0]
    assert numbers["opponent_elo/rival"] == pytest.approx(2400.0 - numbers["elo"])
    first.manager._ratings._fitted_at -= 60
    first.turn()
    assert numbers["opponent_rating/rival"] < numbers["self_play_rating"]
    assert "opponent_age_steps" not in numbers
    second = Stage(tmp_path, generation=2, **frozen)
    second.begin(first.state())
    assert {seat.policy for match in second.matches for seat in match.seats if seat.role is OPPONENT} == {key}
    names = ("opponent_elo", "games_won_against", "games_lost_against")
    assert all(second.trainer.numbers[f"{name}/rival"] == numbers[f"{name}/rival"] for name in names)
    assert key in second.files.keys(NAME)


def test_a_frozen_opponent_of_another_behavior_ends_the_run(tmp_path: Path) -> None:
    """A model with other observations is refused with its setting and path."""
    path = exported(tmp_path, 5)
    with pytest.raises(UserError) as caught:
        Stage(tmp_path, frozen_opponents={"rival": str(path)}).begin()
    start = f"behaviors.{NAME}.self_play.frozen_opponents.rival: {path}: the model takes the observation 'state' with"
    assert caught.value.message.startswith(start)


def test_a_script_plays_all_opponents_of_its_actor(stage: Stage) -> None:
    """The opponents of an actor with a script have its rating, in each of its matches, and those of others do not."""
    name = "my_game:chase"
    session = stage.join("scripted", name)
    (match,) = stage.turn()
    assert (match.session_id, {seat.policy for seat in match.seats}) == (session.session_id, {None})
    stage.report(match, GameResult.LOST)
    stage.report(stage.matches[0], GameResult.WON)
    numbers = stage.trainer.numbers
    assert (numbers[f"games_lost_against/{name}"], numbers[f"opponent_elo/{name}"]) == (1.0, 1200.5)
    assert numbers["games_lost/0"] == 1.0
    state = stage.manager.state_dict()
    again = Stage(Path(stage.files._folder), generation=2)
    again.begin(stage.state())
    assert again.trainer.numbers[f"opponent_elo/{name}"] == 1200.5
    assert again.manager.state_dict()["leagues"][NAME]["fixed"] == state["leagues"][NAME]["fixed"]


def test_a_fleet_of_scripts_is_bounded(stage: Stage) -> None:
    """Beyond a number of scripts all further ones are one opponent."""
    for number in range(MAX_SCRIPTS + 5):
        stage.join(f"scripted {number}", f"my_game:chase_{number}")
    stage.turn()
    rows = stage.manager.state_dict()["leagues"][NAME]["fixed"]["scripts"]
    assert len(rows) == MAX_SCRIPTS + 1
    assert rows[-1] == OTHERS


def test_without_self_play_nothing_happens(tmp_path: Path) -> None:
    """A behavior without self-play has no match, no file and no number."""
    stage = Stage(tmp_path)
    behavior = stage.parts.behaviors.all()[0]
    plain = behavior.settings.model_copy(update={"self_play": None})
    stage.parts.behaviors.all()[0].settings = plain
    stage.begin()
    assert stage.matches == []
    assert stage.files.keys(NAME) == frozenset()
    assert "elo" not in stage.trainer.numbers


def of(*teams: int) -> TeamQueue:
    """Returns a queue with these teams."""
    queue = TeamQueue()
    queue.add(teams)
    return queue


def test_each_team_learns_once_before_the_first_again() -> None:
    """Each team learns once before the first learns again; new teams are appended."""
    queue = of(2, 0, 1)
    seen = [queue.on_turn]
    for _ in range(3):
        assert queue.change(lambda _: True)
        seen.append(queue.on_turn)
    assert seen == [0, 1, 2, 0]
    queue.add([5, 1])
    assert queue.teams == (0, 1, 2, 5)


def test_teams_that_cannot_learn_are_passed_over() -> None:
    """A team whose behaviors have finished gets no turn; without any other the team stays."""
    queue = of(0, 1, 2)
    assert queue.change(lambda team: team == 2)
    assert queue.on_turn == 2
    assert not queue.change(lambda _: False)
    assert queue.on_turn == 2
    assert sorted(queue.teams) == [0, 1, 2]


def test_one_team_stays() -> None:
    """A single team keeps its turn; without teams there is none."""
    assert not of(3).change(lambda _: True)
    assert not TeamQueue().change(lambda _: True)
    assert TeamQueue().on_turn is None


def test_a_queue_continues() -> None:
    """A restored queue has the turn and the order of the saved one."""
    queue, restored = of(0, 1, 2), TeamQueue()
    queue.change(lambda _: True)
    restored.load_state_dict(queue.state_dict())
    restored.add([0, 1, 2])
    assert restored.teams == queue.teams == (1, 2, 0)


@pytest.mark.parametrize("teams", [[0, 0], ["a"], [2**40], [True]])
def test_a_damaged_queue_is_refused(teams: list[object]) -> None:
    """A state with impossible teams is refused."""
    with pytest.raises(ValueError, match="team"):
        TeamQueue().load_state_dict({"teams": teams})
