"""Makes games by OpenSpiel's names."""

import difflib
from typing import Any, Final

from actor_client.boards.positions import ChessGame, Game
from actor_client.boards.shogi import ShogiGame
from actor_client.envs.errors import UnknownEnvironment, one_line
from actor_client.envs.imports import import_extra

_SECOND_SEES: Final = {
    "connect_four": (1, 0, 2),
    "go": (1, 0, 2, 3),
    "mnk": (0, 2, 1),
    "tic_tac_toe": (0, 2, 1),
}
"""Games whose planes of the two players are exchanged for the second one; their boards look the same from both sides."""


def make_game(name: str, max_plies: int | None = None) -> Game:
    """Makes a game.

    Args:
        name: A name of OpenSpiel, with parameters: `go(board_size=9)`.
        max_plies: A game is a draw after so many plies; None is the game's own limit.

    Raises:
        UnknownEnvironment: There is no such game, or it is not for two players who move in turns and see everything.
        ActorError: OpenSpiel is not installed (MISSING_EXTRA).
    """
    pyspiel = import_extra("pyspiel", "OpenSpiel", "actor,boards")
    short = name.partition("(")[0]
    names = pyspiel.registered_names()
    if short not in names:
        near = difflib.get_close_matches(short, names, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; it has {', '.join(sorted(names))}"
        raise UnknownEnvironment(f"OpenSpiel has no game {short!r}{hint}")
    try:
        spiel = pyspiel.load_game(name)
        fault = _fault(pyspiel, spiel)
        if not fault:
            return _made(short, name, spiel, max_plies)  # whose first position some parameters do not allow
    except Exception as error:
        raise UnknownEnvironment(f"{name}: {one_line(error)}") from error
    raise UnknownEnvironment(f"{short} {fault}; a game of two players who move in turns and see everything is needed")


def _made(short: str, name: str, spiel: Any, max_plies: int | None) -> Game:
    if short == "shogi":
        return ShogiGame(spiel, max_plies)
    if short == "chess":
        return ChessGame(name, spiel, max_plies)
    return Game(name, spiel, max_plies, _SECOND_SEES.get(short, ()))


def _fault(pyspiel: Any, spiel: Any) -> str:
    """Returns why a game cannot be played here; empty if it can."""
    kind = spiel.get_type()
    if spiel.num_players() != 2:
        return f"has {spiel.num_players()} players"
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        return "has simultaneous moves"
    if kind.chance_mode != pyspiel.GameType.ChanceMode.DETERMINISTIC:
        return "has chance"
    if kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION:
        return "hides information"
    return "" if kind.provides_observation_tensor else "has no observation tensor"
