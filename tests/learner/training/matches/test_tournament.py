"""Tests a tournament between the turns of the trainers: matches of actors, what counts, what is kept, and the next pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole, GroupEnd
from structlog.testing import capture_logs

from learner.link.matches import Match
from learner.link.to_front import StartMatch, ToFront
from learner.link.to_trainers import Actors
from learner.service.ingest.session import ActorSession
from learner.shared.exits import UserError
from learner.shared.observe.behavior_state import GameView
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.options import RunOptions
from learner.training.export.unity import render_unity
from learner.training.matches.game_records import GameRecords
from learner.training.matches.journal import Journal, Terms
from learner.training.matches.players import Player, distinct, opponent
from learner.training.matches.rating import ELO_PER_UNIT, Pair, Results, Standings, by_seat, probabilities, rate
from learner.training.matches.round import SETTLE_SECONDS
from learner.training.matches.tournament import (
    Tournament,
    TournamentRules,
    missing_scripts,
    narrow_enough,
    next_pair,
)
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.roster import Roster
from tests.learner.service.calls.samples import make_spec
from tests.learner.service.ingest.parts import NAME, Parts
from tests.learner.starts import SETTINGS
from tests.learner.training.matches.games import reported
from tests.learner.training.trainers.in_process import Bench

WON, LOST = GameResult.WON, GameResult.LOST
SCRIPT = "my_game.scripts:chase"
TERMS = Terms(NAME, 1, deterministic=False)
PLAYERS, MATCH, INTERVAL = 8, 20, 80.0


def models(folder: Path, count: int = 3) -> list[Player]:
    """Exports networks of different weights, and returns them as players."""
    found = []
    for seed in range(count):
        spec = make_spec()
        path = folder / f"model-{seed}.onnx"
        path.write_bytes(render_unity(PolicyNetwork(spec, NetworkSettings(), torch.Generator().manual_seed(seed))))
        found.append(opponent(str(path), NAME, folder, folder))
    return found


class Stage:
    """A start of a learner that holds a tournament, and two actors."""

    def __init__(self, folder: Path, *players: Player, **changes: Any) -> None:
        self.now = 100.0
        options = RunOptions.model_validate({"behaviors": {NAME: {**SETTINGS, "self_play": {}}}})
        self.parts = Parts(options)
        self.matches: list[Match] = []
        self.ends = 0
        self.roster = Roster()
        self.journal = Journal(folder / "games.jsonl", TERMS)
        rules: dict[str, Any] = {
            "players": distinct(players),
            "behavior": NAME,
            "random_moves": 1,
            "is_deterministic": False,
            "interval": 1.0,
            "games": 1000,
            "match_games": 4,
            "actors": 1,
            "max_silent_seconds": 60.0,
            **changes,
        }
        self.rules = TournamentRules(**rules)
        self.files = SnapshotFiles(folder)
        self.meters = RunMeters()
        self.tournament = Tournament(
            self.rules,
            self.roster,
            self._take,
            self.journal,
            self.files,
            records=GameRecords(folder, self.meters),
            on_done=self._end,
            clock=lambda: self.now,
        )

    def join(self, name: str, opponent_: str = "", *, teams: int = 2, by_seat: bool = True) -> ActorSession:
        """Lets an actor join."""
        session = self.parts.open(name).session
        session.opponent, session.opponent_by_seat = opponent_, by_seat
        for team in range(teams):
            self.parts.declared(session, team=team)
        session.is_connected = True
        return session

    def begin(self) -> list[Match]:
        """Makes the trainer, waits until no more actors join, and returns the first matches."""
        parts = self.parts
        bench = Bench(parts.link, parts.behaviors, parts.behaviors.all()[0], parts.ledger, StatsReporter(NAME))
        self.tournament.trainer_added(PPOTrainer(bench.context()))
        assert self.turn() == []
        self.now += SETTLE_SECONDS
        return self.turn()

    def turn(self) -> list[Match]:
        """Lets the tournament look, and returns the matches that it begins."""
        self.roster.newest = self.parts.sessions.actors()
        before = len(self.matches)
        self.tournament.after_turn({})
        return self.matches[before:]

    def report(
        self, match: Match, *results: GameResult, team: int = 0, record: GameRecord | None = None, **columns: Any
    ) -> None:
        """Reports games of a seat."""
        self.tournament.received(NAME, reported(match, match.seats[team], results, record=record, **columns))

    def _take(self, message: ToFront) -> None:
        assert isinstance(message, StartMatch)
        self.matches.append(message.match)

    def _end(self) -> None:
        self.ends += 1


Make = Callable[..., Stage]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes stages, and closes their files after the test."""
    made: list[Stage] = []

    def one(*arguments: Any, **changes: Any) -> Stage:
        made.append(Stage(*arguments, **changes))
        return made[-1]

    yield one
    for stage in made:
        stage.journal.close()


def test_each_actor_plays_a_pair_in_named_seats(make: Make, tmp_path: Path) -> None:
    """Every seat of a match names the policy of its player; two actors of one pair play the two orders of seats."""
    stage = make(tmp_path, *models(tmp_path, 2))
    for name in ("one", "two"):
        stage.join(name)
    first, second = stage.begin()
    assert {seat.role for seat in (*first.seats, *second.seats)} == {AssignmentRole.OPPONENT}
    keys = [seat.policy for seat in first.seats]
    assert set(keys) == stage.files.keys(NAME)
    assert [seat.policy for seat in second.seats] == keys[::-1]
    assert (first.episodes, first.random_steps) == (4, 1)
    assert first.session_id != second.session_id
    assert stage.turn() == []


def test_a_match_counts_when_all_its_games_are_over(make: Make, tmp_path: Path) -> None:
    """Games of the first seat count once, at the end of the match, and are on disk; then the other order is played."""
    stage = make(tmp_path, *models(tmp_path, 2))
    stage.join("one")
    (match,) = stage.begin()
    stage.report(match, WON, LOST)
    stage.report(match, LOST, WON, LOST, team=1)
    assert stage.tournament.results == {}
    stage.report(match, GameResult.DRAWN, WON, WON, WON)
    assert stage.tournament.results == {(0, 1): Results(2, 1, 1)}
    (line,) = stage.journal.matches
    assert (line.number, line.wins, line.mean_length, line.actor) == (match.number, 2, 10.0, "one")
    (other,) = stage.turn()
    assert [seat.policy for seat in other.seats] == [seat.policy for seat in match.seats][::-1]
    assert other.number > match.number


def test_the_newest_game_of_a_finished_match_is_recorded(make: Make, tmp_path: Path) -> None:
    """A record of the first seat counts once its match is over, under the names of the players."""
    stage = make(tmp_path, *models(tmp_path, 2))
    stage.join("one")
    (match,) = stage.begin()
    played = GameRecord(match.number, "hex", match.seats[1].team, GameResult.LOST, ("a1",))
    stage.report(match, WON, LOST, record=replace(played, moves=("b2",)))
    stage.report(match, WON, record=played)
    stage.report(match, record=replace(played, match=99))
    stage.report(match, WON, team=1, record=replace(played, moves=("c3",)))
    assert stage.meters.behavior(NAME).counts().game is None
    stage.report(match, WON)
    game = stage.meters.behavior(NAME).counts().game
    assert game == GameView("hex", "model-1", "model-0", "0-1", "a1")
    assert (tmp_path / NAME / "games" / "game-000001.txt").exists()


def test_a_game_of_groups_counts_once(make: Make, tmp_path: Path) -> None:
    """Mates report one game: the record with which it ends counts."""
    stage = make(tmp_path, *models(tmp_path, 2))
    stage.join("one")
    (match,) = stage.begin()
    ends = [GroupEnd.CONTINUES, GroupEnd.TERMINATED, GroupEnd.TERMINATED, GroupEnd.TERMINATED]
    stage.report(match, WON, WON, WON, LOST, group=[7, 7, 7, 7], group_episode=[1, 1, 1, 2], group_end=ends)
    assert stage.tournament.results == {(0, 1): Results(1, 0, 1)}


def test_games_of_other_matches_and_sessions_do_not_count(make: Make, tmp_path: Path) -> None:
    """A record of another match, or from another session, is ignored."""
    stage = make(tmp_path, *models(tmp_path, 2))
    for name in ("one", "two"):
        stage.join(name)
    first, second = stage.begin()
    stage.report(Match(first.number, second.session_id, first.seats), WON, WON, WON, WON)
    stage.report(Match(first.number + 100, first.session_id, first.seats), WON, WON, WON, WON)
    stage.report(Match(first.number, "another", first.seats), WON, WON, WON, WON)
    assert stage.tournament.results == {}


def test_a_match_whose_actor_has_left_is_played_by_another(make: Make, tmp_path: Path) -> None:
    """Its games do not count, because short ones end first; another actor plays the pair."""
    stage = make(tmp_path, *models(tmp_path, 2))
    stage.join("one")
    (match,) = stage.begin()
    stage.report(match, WON, WON, WON)
    stage.roster.newest = Actors()
    with capture_logs() as logs:
        stage.tournament.after_turn({})
    assert [line["event"] for line in logs] == ["match_abandoned"]
    assert stage.tournament.results == {}


def test_an_actor_that_ends_no_game_is_left_out(make: Make, tmp_path: Path) -> None:
    """After the time of the settings its match is abandoned, it gets no other, and the reason is logged."""
    stage = make(tmp_path, *models(tmp_path, 2))
    stage.join("one")
    stage.begin()
    stage.now += 60.0
    with capture_logs() as logs:
        assert stage.turn() == []
    assert [line["event"] for line in logs] == ["actor_left_out", "match_abandoned"]
    assert "no game has ended for 60 s" in logs[0]["reason"]


def test_it_ends_with_its_games_or_narrow_intervals(make: Make, tmp_path: Path) -> None:
    """No match begins beyond the number of games, and none after the intervals are narrow."""
    stage = make(tmp_path, *models(tmp_path, 2), games=6)
    stage.join("one")
    (match,) = stage.begin()
    stage.report(match, WON, WON, LOST, LOST)
    (last,) = stage.turn()
    assert (last.episodes, stage.ends) == (2, 0)
    stage.report(last, WON, LOST)
    assert (stage.turn(), stage.ends) == ([], 1)
    wide = make(tmp_path / "wide", *stage.rules.players, interval=1000.0)
    wide.join("one")
    (match,) = wide.begin()
    wide.report(match, WON, WON, LOST, LOST)
    assert (wide.turn(), wide.ends) == ([], 1)


def test_another_start_continues(make: Make, tmp_path: Path) -> None:
    """Finished matches count after a start, match numbers continue, and an unfinished match is played again."""
    players = models(tmp_path, 2)
    stage = make(tmp_path, *players)
    stage.join("one")
    (match,) = stage.begin()
    stage.report(match, WON, WON, LOST, LOST)
    (unfinished,) = stage.turn()
    stage.report(unfinished, WON)
    stage.journal.close()
    again = make(tmp_path, *players)
    assert again.tournament.results == stage.tournament.results == {(0, 1): Results(2, 0, 2)}
    again.join("one")
    (next_,) = again.begin()
    assert [seat.policy for seat in next_.seats] == [seat.policy for seat in unfinished.seats]
    assert next_.number > match.number


def test_random_draws_uniformly(make: Make, tmp_path: Path) -> None:
    """The random player is a policy whose header asks for uniform draws."""
    stage = make(tmp_path, *models(tmp_path, 1), opponent("random", NAME, tmp_path, tmp_path))
    stage.join("one")
    (match,) = stage.begin()
    model, drawn = (stage.files.read(NAME, seat.policy) for seat in match.seats if seat.policy is not None)
    assert model is not None
    assert drawn is not None
    assert (model.description.uniform, drawn.description.uniform) == (False, True)


def test_a_script_plays_where_it_is(make: Make, tmp_path: Path) -> None:
    """Only an actor with the script plays it, in a seat without a policy; one of an earlier build plays nothing."""
    players = [*models(tmp_path, 2), opponent(f"actor:{SCRIPT}", NAME, tmp_path, tmp_path)]
    stage = make(tmp_path, *players)
    stage.join("plain")
    stage.join("scripted", SCRIPT)
    stage.join("old", SCRIPT, by_seat=False)
    with capture_logs() as logs:
        first, second = stage.begin()
    assert [line["actor"] for line in logs if line["event"] == "actor_left_out"] == ["old"]
    assert None not in [seat.policy for seat in first.seats]
    assert [seat.policy for seat in second.seats].count(None) == 1
    assert missing_scripts(stage.rules, stage.tournament.results) == [SCRIPT]
    stage.report(second, WON, WON, WON, WON)
    assert missing_scripts(stage.rules, stage.tournament.results) == []


@pytest.mark.parametrize(("teams", "told"), [(1, []), (3, ["it has 3 teams"])])
def test_a_game_has_two_teams(teams: int, told: list[str], make: Make, tmp_path: Path) -> None:
    """An actor with one team may still declare the other; one with three is left out."""
    stage = make(tmp_path, *models(tmp_path, 2))
    stage.join("one", teams=teams)
    with capture_logs() as logs:
        assert stage.begin() == []
    assert [line["reason"][:14] for line in logs] == told


def test_a_model_for_another_behavior_ends_the_start(make: Make, tmp_path: Path) -> None:
    """The error names the player and its file."""
    players = models(tmp_path, 2)
    assert players[1].path is not None
    players[1].path.write_bytes(b"no model")
    stage = make(tmp_path, *players)
    stage.join("one")
    with pytest.raises(UserError, match=r"player model-1: .*model-1\.onnx"):
        stage.begin()


@dataclass
class Simulation:
    """A tournament of players with known strengths.

    Attributes:
        truth: Their strengths in points, with the mean 0.
        results: Results of the first seat.
        standings: The ratings at the end.
    """

    truth: NDArray[np.float64]
    results: dict[Pair, Results]
    standings: Standings

    @property
    def games(self) -> int:
        """Number of games."""
        return int(sum(each.games for each in self.results.values()))


def simulate(seed: int, *, advantage: float = 0.0, log_draw: float = -1.0, interval: float = INTERVAL) -> Simulation:
    """Plays a tournament as the command does, until the intervals are narrow enough.

    Args:
        seed: Seed of strengths and games.
        advantage: What the first seat adds to a strength, in points.
        log_draw: Logarithm of the draw parameter.
        interval: Halves of the intervals at which it ends.
    """
    random = np.random.default_rng(seed)
    truth = random.normal(0.0, 200.0, PLAYERS)
    truth -= truth.mean()
    results: dict[Pair, Results] = {}
    standings = rate(PLAYERS, results)
    while not narrow_enough(standings, results.values(), interval):
        pair = next_pair(standings, results, {}, games=MATCH, interval=interval, may_play=lambda _: True)
        assert pair is not None
        difference = np.asarray([truth[pair[0]] - truth[pair[1]] + advantage]) / ELO_PER_UNIT
        win, draw = (float(share[0]) for share in probabilities(difference, log_draw))
        wins, draws, losses = random.multinomial(MATCH, [win, draw, 1.0 - win - draw])
        found = results.setdefault(pair, Results())
        found.wins, found.draws, found.losses = found.wins + wins, found.draws + draws, found.losses + losses
        standings = rate(PLAYERS, results)
    return Simulation(truth, results, standings)


def covered(simulations: list[Simulation]) -> float:
    """Returns the share of all intervals that hold the true strength."""
    return float(
        np.mean([np.abs(each.standings.ratings - each.truth) <= each.standings.errors for each in simulations])
    )


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("advantage", "log_draw"), [(0.0, -1.0), (100.0, 0.5)])
def test_the_intervals_hold_the_truth(advantage: float, log_draw: float) -> None:
    """On 200 simulated tournaments, which end as soon as the intervals are narrow, 92 to 98 % of them hold the truth."""
    found = [simulate(seed, advantage=advantage, log_draw=log_draw) for seed in range(200)]
    assert 0.92 <= covered(found) <= 0.98
    held = [abs(each.standings.advantage - advantage) <= each.standings.advantage_error for each in found]
    assert np.mean(held) >= 0.9


def test_seats_alternate_and_no_pair_is_favored() -> None:
    """Each pair plays as many games in one seating as in the other, give or take one match, and all players as many."""
    found = simulate(3)
    for (first, second), each in found.results.items():
        other = found.results.get((second, first), Results())
        assert abs(each.games - other.games) <= MATCH
    games = [each.games for each in by_seat(["" for _ in range(PLAYERS)], found.results)]
    assert min(games) >= 2 * MATCH
    assert found.standings.widest <= INTERVAL


def test_a_match_goes_where_it_narrows_most() -> None:
    """A player without games plays next, and among players with games the widest interval decides."""
    results: dict[Pair, Results] = {(0, 1): Results(20, 10, 10), (1, 0): Results(10, 10, 20)}
    standings = rate(3, results)

    def choose(planned: dict[Pair, int], interval: float = 1.0) -> Pair | None:
        return next_pair(standings, results, planned, games=10, interval=interval, may_play=lambda _: True)

    first = choose({})
    assert first is not None
    assert 2 in first
    other = choose({first: 10})
    assert other is not None
    assert 2 in other
    assert set(other) != set(first)
    assert choose({first: 10, other: 10}) == first[::-1], "seats alternate"


def test_a_pair_that_nobody_can_play_is_left_out() -> None:
    """Only pairs that the actor can play are chosen; without any there is none."""
    standings = rate(3, {})
    pair = next_pair(standings, {}, {}, games=1, interval=1.0, may_play=lambda pair: pair == (1, 2))
    assert pair == (1, 2)
    assert next_pair(standings, {}, {}, games=1, interval=1.0, may_play=lambda _: False) is None


def test_the_first_pair_does_not_depend_on_rounding() -> None:
    """At first all pairs are equal, and they are taken in their order."""
    planned: dict[Pair, int] = {}
    order = []
    for _ in range(4):
        pair = next_pair(rate(4, {}), {}, planned, games=10, interval=1.0, may_play=lambda _: True)
        assert pair is not None
        planned[pair] = planned.get(pair, 0) + 10
        order.append(pair)
    assert order == [(0, 1), (2, 3), (0, 2), (1, 3)]


def test_without_games_no_interval_is_narrow() -> None:
    """A tournament has games, however wide its intervals may be."""
    assert not narrow_enough(rate(3, {}), (), 1e9)
