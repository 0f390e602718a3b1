"""Tests records of games: KIF says the same moves as USI, PGN is of its form, and folders hold every Nth game."""

# ruff: noqa: RUF001 - letters of KIF

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.kif import kif_moves

from actor_client.boards.catalog import make_game
from actor_client.boards.positions import Position
from actor_client.boards.records import RecordFolder, moves_of, text_of
from actor_client.boards.shogi import ShogiPosition
from actor_client.exits import ActorError, ExitCode

NAMES = ("first", "second")
SHOGI = make_game("shogi", 150)
FILES, RANKS = "０１２３４５６７８９", "一二三四五六七八九"
MOVE = re.compile(
    r" *(\d+) (?:(同　)|([１-９])([一二三四五六七八九]))(成[香桂銀]|[歩香桂銀金角飛玉と馬龍])(成)?(打|\(([1-9])([1-9])\))"
)
PIECES = ("歩", "香", "桂", "銀", "金", "角", "飛", "玉")
PROMOTED = ("と", "成香", "成桂", "成銀", "", "馬", "龍")
LETTERS = dict(zip("歩香桂銀金角飛", "PLNSGBR", strict=True))


def random_game(name: str, seed: int, plies: int) -> Position:
    """Returns the end of a random game."""
    numbers = random.Random(seed)
    position = (SHOGI if name == "shogi" else make_game(name, plies)).start()
    while not position.is_over and position.plies < plies:
        position.play(int(numbers.choice(position.legal)))
    return position


def record(position: Position) -> str:
    """Returns the record of a game as text."""
    return text_of(position, NAMES, "2026.01.31").render()


def usi_of(line: str, before: str) -> str:
    """Reads a line of KIF as USI."""
    found = MOVE.fullmatch(line)
    assert found is not None, line
    _, same, file, rank, piece, promotes, origin, from_file, from_rank = found.groups()
    target = before if same else f"{FILES.index(file)}{chr(ord('a') + RANKS.index(rank))}"
    if origin == "打":
        return f"{LETTERS[piece]}*{target}"
    return f"{from_file}{chr(ord('a') + int(from_rank) - 1)}{target}{'+' if promotes else ''}"


def piece_of(position: ShogiPosition, usi: str) -> str:
    """Returns the name of the piece that moves, from the position itself."""
    if usi[1] == "*":
        return PIECES["PLNSGBR".index(usi[0])]
    code = position.squares[9 * (8 - (ord(usi[1]) - ord("a"))) + 9 - int(usi[0])] % 16 - 1
    return (PROMOTED if code >= 8 else PIECES)[code % 8]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_kif_says_the_same_moves_as_usi(seed: int) -> None:
    """Each line of a record is the move of the game, read by other code."""
    position = random_game("shogi", seed, 150)
    lines = record(position).splitlines()
    assert lines[1:5] == ["開始日時：2026/01/31", "手合割：平手", "先手：first", "後手：second"]
    moves = moves_of(position)
    before, read = "", []
    replayed = SHOGI.start()
    assert isinstance(replayed, ShogiPosition)
    for line in lines[6 : 6 + len(moves)]:
        read.append(usi_of(line, before))
        assert ("同　" in line) is (read[-1][2:4] == before)
        assert piece_of(replayed, read[-1]) in line
        replayed.play(replayed.read_move(read[-1]))
        before = read[-1][2:4]
    assert read == moves
    ends = {None: "中断", 0.0: "持将棋", 1.0: "詰み", -1.0: "詰み"}
    end = lines[6 + len(moves)]
    assert end.split()[1] in {ends[None if position.returns is None else position.returns[0]], "千日手"}


def test_kif_of_known_moves() -> None:
    """Promotions, drops, the same square, and promoted pieces are written as usual."""
    said = kif_moves(("7g7f", "3c3d", "8h2b+", "3a2b", "B*4e", "8c8d", "4e6c+", "8b8c", "6c8a"))
    assert list(said) == [
        "７六歩(77)", "３四歩(33)", "２二角成(88)", "同　銀(31)", "４五角打", "８四歩(83)", "６三角成(45)", "８三飛(82)", "８一馬(63)",
    ]  # fmt: skip


def test_how_games_of_shogi_end() -> None:
    """A repetition, a draw by plies, a resigned and an unfinished game have their own last lines."""

    def lines(moves: list[str], plies: int | None = None) -> list[str]:
        position = make_game("shogi", plies).start()
        for move in moves:
            position.play(position.read_move(move))
        return record(position).splitlines()[6 + len(moves) :]

    shuffle = ["2h3h", "8b7b", "3h2h", "7b8b"]
    assert lines(shuffle * 3) == ["  13 千日手", "まで12手で引き分け"]
    assert lines(shuffle, 4) == ["   5 持将棋", "まで4手で引き分け"]
    assert lines(shuffle) == ["   5 中断"]
    position = SHOGI.start()
    position.play(position.read_move("7g7f"))
    position.resign()
    text = record(position)
    assert text.splitlines()[-2:] == ["   2 投了", "まで1手で先手の勝ち"]


def test_pgn() -> None:
    """A game of chess has the seven tags, numbered moves in lines of at most 80 characters, and the result."""
    position = make_game("chess").start()
    for move in ("f3", "e5", "g4", "Qh4#"):
        names = position.notations()
        position.play(names.get(move, names.get(move.rstrip("#"), -1)))
    text = record(position)
    assert text == (
        '[Event "Rollcast"]\n[Site "?"]\n[Date "2026.01.31"]\n[Round "-"]\n[White "first"]\n[Black "second"]\n'
        '[Result "0-1"]\n\n1. f3 e5 2. g4 Qh4# 0-1\n'
    )
    long = record(random_game("chess", 1, 90))
    assert max(map(len, long.splitlines())) <= 80


def test_other_games_are_lists_of_moves() -> None:
    """One move a line, after the players and the result."""
    position = random_game("tic_tac_toe", 4, 9)
    lines = record(position).splitlines()
    assert lines[:3] == ["# game: tic_tac_toe", "# first: first", "# second: second"]
    assert lines[3].startswith("# result: ")
    replayed = position.game.start()
    for move in lines[4:]:
        replayed.play(replayed.read_move(move))
    assert replayed.text() == position.text()


def test_a_folder_holds_every_nth_game(tmp_path: Path) -> None:
    """The first game and each Nth after it are written; a folder that cannot be made ends the command."""
    records = RecordFolder(tmp_path / "games", every=2)
    position = random_game("connect_four", 5, 42)
    written = [records.finished(position, NAMES) for _ in range(5)]
    assert [path and path.name for path in written] == [
        "game-000001.txt", None, "game-000003.txt", None, "game-000005.txt",
    ]  # fmt: skip
    (tmp_path / "file").write_text("")
    with pytest.raises(ActorError, match="cannot be written") as caught:
        RecordFolder(tmp_path / "file" / "games")
    assert caught.value.exit_code is ExitCode.NOT_WRITTEN
