"""Runs `rollcast play`."""

import sys
from collections.abc import Mapping
from importlib.metadata import version

from actor_client.boards.catalog import make_game
from actor_client.boards.play.model import Model
from actor_client.boards.play.players import ModelPlayer, Style
from actor_client.boards.play.terminal import Terminal, choose_seat
from actor_client.boards.play.usi import UsiEngine
from actor_client.boards.records import RecordFolder
from actor_client.boards.shogi import ShogiGame
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.boards import PlaySettings
from actor_client.settings.loading import load


def run_play(flags: Mapping[str, object]) -> ExitCode:
    """Plays a model, in the terminal or as an engine, until the user leaves.

    Raises:
        ActorError: The command line is wrong, or the game or the model cannot be used.
    """
    settings = load(PlaySettings, flags)
    game = make_game(settings.game, settings.max_plies)
    if settings.usi and not isinstance(game, ShogiGame):
        raise ActorError(ExitCode.USAGE, f"--usi is a protocol of shogi; leave it out for {settings.game}")
    player = ModelPlayer(
        Model(settings.model, game), Style(settings.temperature, settings.search, settings.search_width), settings.seed
    )
    if settings.usi:
        name = f"Rollcast {version('rollcast')} {settings.model.stem}"
        UsiEngine(game, player, name, source=sys.stdin, sink=sys.stdout).run()
        return ExitCode.OK
    records = None if settings.records is None else RecordFolder(settings.records)
    seat = choose_seat(settings.side, settings.seed)
    Terminal(game, player, seat, records=records, source=sys.stdin, sink=sys.stdout).run()
    return ExitCode.OK
