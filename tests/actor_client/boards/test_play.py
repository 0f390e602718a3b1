"""Tests play with an exported model: choices, search, the terminal, and the engine."""

from __future__ import annotations

import io
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from actor_client.boards.catalog import make_game
from actor_client.boards.play.model import Model
from actor_client.boards.play.players import ModelPlayer, Style
from actor_client.boards.play.search import Search
from actor_client.boards.play.terminal import Terminal
from actor_client.boards.play.usi import UsiEngine, read_limits
from actor_client.boards.positions import Game, Position
from actor_client.boards.records import RecordFolder
from actor_client.exits import ActorError, ExitCode
from learner.shared.settings.network import NetworkSettings, TowerSettings
from learner.training.export.unity import render_unity
from learner.training.networks.policy import PolicyNetwork
from tests.actor_client.boards.models import write_model

FOUR, SHOGI = make_game("connect_four"), make_game("shogi")
WAIT_SECONDS = 300.0


def after(moves: str) -> Position:
    """Returns a position of connect_four after drops into columns."""
    position = FOUR.start()
    for move in moves:
        position.play(int(move))
    return position


def player(folder: Path, style: Style, likes: dict[int, float] | None = None) -> ModelPlayer:
    """Returns a player of connect_four."""
    return ModelPlayer(Model(write_model(folder / "model.onnx", FOUR, likes), FOUR), style, seed=1)


@pytest.mark.parametrize("game", [FOUR, SHOGI], ids=["floats", "bytes with a scale"])
def test_a_model_sees_what_its_policy_saw(game: Game, tmp_path: Path) -> None:
    """An exported model has the log-probabilities of the network, which takes observations as actors send them."""
    settings = NetworkSettings(tower=TowerSettings(depth=1, width=4), initialization="kaiming")
    network = PolicyNetwork(game.spec("Game"), settings, torch.Generator().manual_seed(1))
    path = tmp_path / "model.onnx"
    path.write_bytes(render_unity(network))
    position = game.start()
    for _ in range(4):
        position.play(int(position.legal[0]))
    (found,) = Model(path, game).log_probs([position])
    seen = [torch.from_numpy(game.observe([position], [position.mover]))]
    logits = network(seen, torch.from_numpy(game.masks([position]))).logits
    assert logits is not None
    np.testing.assert_allclose(found, logits.detach().numpy()[0, position.legal], rtol=1e-3, atol=1e-4)


def test_a_model_of_another_game_is_refused(tmp_path: Path) -> None:
    """A file that is no model, of another game, or without log-probabilities ends with one line."""
    (tmp_path / "text.onnx").write_bytes(b"text")
    write_model(tmp_path / "other.onnx", SHOGI)
    write_model(tmp_path / "old.onnx", FOUR, output="scores")
    for name, said in [
        ("text.onnx", "not a model"),
        ("other.onnx", "takes boards of [47, 9, 9] and [2187] moves; connect_four has [3, 6, 7] and [7]: export it"),
        ("old.onnx", "not a model with discrete_log_probs"),
    ]:
        with pytest.raises(ActorError) as caught:
            Model(tmp_path / name, FOUR)
        assert caught.value.exit_code is ExitCode.POLICY_FAILED
        assert said in caught.value.message
        assert "\n" not in caught.value.message


def test_a_model_file_that_never_ends_is_refused(tmp_path: Path) -> None:
    """A pipe into which nobody writes, or a device, in the place of a model is an error of the command line at once."""
    os.mkfifo(tmp_path / "silent.onnx")
    (tmp_path / "endless.onnx").symlink_to("/dev/zero")
    for name in ("silent.onnx", "endless.onnx"):
        with pytest.raises(ActorError, match="not a regular file") as caught:
            Model(tmp_path / name, FOUR)
        assert caught.value.exit_code is ExitCode.USAGE


def test_greedy_and_drawn_moves(tmp_path: Path) -> None:
    """Without a temperature the likeliest move is played; with one, moves have the powers of their probabilities."""
    likes = {2: np.log(4.0)}  # 0.4, the others 0.1 each
    greedy = player(tmp_path, Style(), likes)
    assert {greedy.choose(FOUR.start()).number for _ in range(5)} == {2}
    for temperature, share in ((1.0, 0.4), (0.5, 16 / 22)):
        drawn = player(tmp_path, Style(temperature), likes)
        counts = Counter(drawn.choose(FOUR.start()).number for _ in range(600))
        assert abs(counts[2] / 600 - share) < 0.08
        assert len(counts) == 7


def test_search_wins_and_does_not_lose(tmp_path: Path) -> None:
    """One ply finds a win, two a threat, three a double threat; each against the policy's own preference."""
    likes = {6: 5.0}
    assert player(tmp_path, Style(0.0, 1), likes).choose(after("112233")).number in {0, 4}
    threatened = after("01020")  # seat 1 must take column 0
    assert player(tmp_path, Style(), likes).choose(threatened).number == 6
    for temperature in (0.0, 1.0):
        found = player(tmp_path, Style(temperature, 2), likes).choose(threatened)
        assert found.number == 0
    twice = after("3626")  # three in a row with both ends free wins in three plies
    found = player(tmp_path, Style(0.0, 3), likes).choose(twice)
    assert found.number in {1, 4}
    assert found.value > 0.9
    assert found.plies == 3


def test_search_looks_further_if_the_likeliest_moves_lose() -> None:
    """With a width of one, the only move that does not lose is still found."""

    def log_probs(positions: list[Position]) -> list[NDArray[np.float32]]:
        """Seat 0 likes column 0, where it wins, and seat 1 the last one."""
        return [np.sort(np.arange(len(each.legal), dtype=np.float32))[:: 1 if each.mover else -1] for each in positions]

    position = after("01020")
    assert Search(log_probs, plies=1, width=1).run(position).number == 6
    assert Search(log_probs, plies=2, width=1).run(position).number == 0


def test_search_ends_in_time(tmp_path: Path) -> None:
    """A search that is over at once returns the policy's move; one that is cut keeps its last complete depth."""
    model = Model(write_model(tmp_path / "model.onnx", FOUR, {6: 5.0}), FOUR)
    found = Search(model.log_probs, plies=60, width=7, is_over=lambda: True).run(FOUR.start())
    assert (found.number, found.plies) == (6, 0)
    calls: list[int] = []

    def later() -> bool:
        calls.append(1)
        return len(calls) > 500

    found = Search(model.log_probs, plies=60, width=7, is_over=later).run(FOUR.start())
    assert 1 <= found.plies < 6


def converse(folder: Path, lines: list[str], seat: int = 0, likes: dict[int, float] | None = None) -> str:
    """Returns what a person reads in a terminal."""
    sink = io.StringIO()
    Terminal(
        FOUR,
        player(folder, Style(), likes or {6: 5.0}),
        seat,
        records=RecordFolder(folder / "games"),
        source=io.StringIO("".join(f"{line}\n" for line in lines)),
        sink=sink,
    ).run()
    return sink.getvalue()


def test_a_game_in_the_terminal(tmp_path: Path) -> None:
    """Moves, wrong moves, lists, hints, taking back, the end and the record of a game; the input may end at any time."""
    said = converse(
        tmp_path, ["help", "moves", "hint", "x9", "x1", "back", "x1", "x1", "x1", "x1", "x2", "moves", "hint", "resign"]
    )
    assert "You move first." in said
    assert "x0     x1     x2     x3     x4     x5     x6" in said
    assert "o6" not in said.split("The model plays")[0]
    assert "'x9' is not a legal move here; `moves` lists the legal moves" in said
    assert said.count("The model plays o6.") == 4
    assert "You win. 7 moves were played." in said
    assert "The game is over: `new`, `back` or `quit`." in said
    (record,) = (tmp_path / "games").iterdir()
    assert record.read_text().splitlines()[1:4] == ["# first: Person", "# second: Model", "# result: 1-0"]


def test_the_model_moves_first_and_sides_change(tmp_path: Path) -> None:
    """The model opens if the person moves second; a new game changes sides, and quit leaves."""
    said = converse(tmp_path, ["back", "resign", "resign", "new", "quit", "x1"], seat=1)
    assert said.index("You move second.") < said.index("The model plays x6.")
    assert "There is no move of yours to take back." in said
    assert said.count("You have resigned. The model wins.") == 1
    assert said.endswith("move 1> ")
    assert "You move first." in said


def test_resigning_can_be_taken_back(tmp_path: Path) -> None:
    """The record of a resigned game has its result; after `back` the game goes on where it was resigned."""
    said = converse(tmp_path, ["x1", "resign", "x2", "back", "x2", "resign"])
    assert said.count("You have resigned. The model wins.") == 2
    assert said.count("The game is over") == 1
    first, second = sorted((tmp_path / "games").iterdir())
    assert first.read_text().splitlines()[3:] == ["# result: 0-1", "x1", "o6"]
    assert second.read_text().splitlines()[3:] == ["# result: 0-1", "x1", "o6", "x2", "o6"]


class Engine:
    """An engine in a thread, and the lines that it has written."""

    def __init__(self, folder: Path, style: Style, likes: dict[int, float] | None = None) -> None:
        path = write_model(folder / "shogi.onnx", SHOGI, likes)
        self.player = ModelPlayer(Model(path, SHOGI), style, seed=1)
        self._lines: queue.Queue[str] = queue.Queue()
        self._given: queue.Queue[str] = queue.Queue()
        engine: Any = UsiEngine(SHOGI, self.player, "Test", source=self, sink=self)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=engine.run, name="engine")
        self._thread.start()

    def readline(self, size: int = -1) -> str:
        """Waits for the next line of the interface."""
        return self._given.get(timeout=WAIT_SECONDS)

    def write(self, text: str) -> None:
        """Takes what the engine writes."""
        if text != "\n":
            self._lines.put(text)

    def flush(self) -> None:
        """Does nothing."""

    def say(self, *lines: str) -> None:
        """Gives lines to the engine."""
        for line in lines:
            self._given.put(f"{line}\n")

    def until(self, start: str) -> list[str]:
        """Returns all lines to the first that begins so."""
        found = []
        while True:
            found.append(self._lines.get(timeout=WAIT_SECONDS))
            if found[-1].startswith(start):
                return found

    def best(self) -> str:
        """Returns the next best move."""
        return self.until("bestmove")[-1].split()[1]

    def end(self) -> None:
        """Ends the input, and waits."""
        self._given.put("")
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()


@contextmanager
def engine(folder: Path, style: Style | None = None, likes: dict[int, float] | None = None) -> Iterator[Engine]:
    """Runs an engine during a block."""
    made = Engine(folder, style or Style())
    try:
        yield made
    finally:
        made.end()


def test_the_engine_introduces_itself(tmp_path: Path) -> None:
    """It tells name and options, is ready, and takes options within their limits; others are ignored."""
    with engine(tmp_path, Style(0.25, 2)) as usi:
        usi.say("usi")
        said = usi.until("usiok")
        assert "id name Test" in said
        assert "option name SearchPlies type spin default 2 min 0 max 64" in said
        assert "option name Temperature type spin default 25 min 0 max 10000" in said
        usi.say("setoption name SearchPlies value 999", "setoption name Temperature value 50")
        usi.say("setoption name SearchWidth value 0", "setoption name USI_Hash value 256", "setoption", "isready")
        assert usi.until("readyok") == ["readyok"]
        assert usi.player.style == Style(0.5, 64, 1)


def test_the_engine_plays_legal_games(tmp_path: Path) -> None:
    """It plays both sides with a time limit to the end of a game, in which each move is legal; the end is resigned."""
    with engine(tmp_path, Style(1.0)) as usi:
        usi.say("usinewgame")
        moves: list[str] = []
        position = make_game("shogi").start()
        while not position.is_over and position.plies < 120:
            usi.say(f"position startpos moves {' '.join(moves)}".strip(), "go btime 0 wtime 0 byoyomi 1000")
            moves.append(usi.best())
            position.play(position.read_move(moves[-1]))
        assert position.plies == 120 or position.is_over
        usi.say("position sfen 4k4/9/9/9/9/9/9/9/R3K4 b - 1", "go movetime 500")
        assert usi.best() in make_game("shogi").start("4k4/9/9/9/9/9/9/9/R3K4 b - 1").notations()


def test_the_engine_survives_anything(tmp_path: Path) -> None:
    """Unknown commands, positions that are over, wrong or missing, and stops without a thought do no harm."""
    with engine(tmp_path) as usi:
        usi.say("", "xyzzy", "stop", "ponderhit", "gameover win", "position", "go")
        said = usi.until("bestmove")
        assert said == [
            "info string error: write position startpos or position sfen SFEN, then moves ...",
            "bestmove resign",
        ]
        usi.say("position startpos moves 7g7f 7g7f", "go")
        assert usi.until("bestmove")[0].startswith("info string error: '7g7f' is not a legal move")
        usi.say("position sfen nonsense", "go")
        assert usi.best() == "resign"
        usi.say("position startpos moves " + "2h3h 8b7b 3h2h 7b8b " * 3, "go movetime 100")
        assert usi.best() == "resign"
        usi.say("position sfen 4k4/4G4/4P4/9/9/9/9/9/4K4 w - 1", "go")
        assert usi.best() == "resign"  # mated
        usi.say("go mate 1000")
        assert usi.until("checkmate") == ["checkmate notimplemented"]
        usi.say("position startpos", "go btime x wtime -1 byoyomi 99999999999999999999")
        assert usi.best() in SHOGI.start().notations()
        usi.say("isready")
        usi.until("readyok")


def test_the_engine_keeps_its_time_and_stops(tmp_path: Path) -> None:
    """A deep search ends with its time; without a limit it ends with `stop`, and the move is not told before."""
    with engine(tmp_path, Style(0.0, 64, 8)) as usi:
        usi.say("position startpos")
        began = time.monotonic()
        usi.say("go btime 60000 wtime 60000 byoyomi 300")
        assert usi.best() in SHOGI.start().notations()
        assert time.monotonic() - began < WAIT_SECONDS
        usi.player.style = Style(0.0, 1)  # the move is chosen soon, with one line of information
        for command, release in (("go infinite", "stop"), ("go ponder byoyomi 300", "ponderhit")):
            usi.say(command)
            usi.until("info depth 1")
            for _ in range(50):  # in which it would tell its move
                usi.say("isready")
                assert not [line for line in usi.until("readyok") if line.startswith("bestmove")]
            usi.say(release)
            assert usi.best() in SHOGI.start().notations()
        usi.say("go infinite", "quit")
        assert usi.best() in SHOGI.start().notations()


@pytest.mark.parametrize(
    ("words", "mover", "seconds"),
    [
        ("movetime 1000", 0, 0.9),
        ("byoyomi 5000 btime 0 wtime 0", 1, 4.9),
        ("btime 400000 wtime 0 byoyomi 0", 0, 9.9),
        ("btime 400000 wtime 40000 binc 0 winc 2000", 1, 2.9),
        ("btime 50 wtime 50", 0, 0.01),
        ("infinite", 0, float("inf")),
        ("", 0, float("inf")),
    ],
)
def test_time_limits(words: str, mover: int, seconds: float) -> None:
    """A move takes its own time, and a fortieth of what remains, less the way of the answer."""
    assert read_limits(words.split(), mover).seconds == pytest.approx(seconds)
