"""An exported model as a player sees it: log-probabilities of the legal moves of positions."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.descriptions import ACTION_MASKS, DISCRETE_LOG_PROBS, declared_output
from rollcast.files import read_regular
from rollcast.limits import MAX_POLICY_BYTES

from actor_client.boards.positions import Game, Position
from actor_client.envs.errors import one_line
from actor_client.exits import ActorError, ExitCode
from actor_client.policy.graph import open_session

FloatArray = NDArray[np.float32]

_OBSERVATION: Final = "obs_0"
_MODEL: Final = ".onnx"
_NEAR: Final = 3
"""Most models that a message names."""


class Model:
    """An exported model for one game.

    Args:
        path: The ONNX file that a run exported.
        game: The game.

    Raises:
        ActorError: The file cannot be read or is no export (USAGE), or the model is for another game (POLICY_FAILED).
    """

    def __init__(self, path: Path, game: Game) -> None:
        self._path = path
        self._game = game
        self._session = self._opened()
        shapes = {port.name: list(port.shape[1:]) for port in self._session.get_inputs()}
        if set(shapes) != {_OBSERVATION, ACTION_MASKS}:
            raise self._failed(
                f"the model takes {', '.join(sorted(shapes))}; a model of this game takes {_OBSERVATION} and "
                f"{ACTION_MASKS}: export it by a run of rollcast act boards"
            )
        wanted = {_OBSERVATION: list(game.observation.shape), ACTION_MASKS: [game.moves]}
        if shapes != wanted:
            raise self._failed(
                f"the model takes boards of {shapes[_OBSERVATION]} and {shapes[ACTION_MASKS]} moves; {game.name} has "
                f"{wanted[_OBSERVATION]} and {wanted[ACTION_MASKS]}: export it by a run of rollcast act boards with "
                f"--game {game.name}"
            )
        self.log_probs([game.start()])

    def log_probs(self, positions: list[Position]) -> list[FloatArray]:
        """Returns the log-probabilities of the legal moves, float32 [moves] for each position, in the order of `legal`.

        Raises:
            ActorError: The model fails, or its outputs are not finite (POLICY_FAILED).
        """
        game = self._game
        observations = game.observe(positions, [position.mover for position in positions]).astype(np.float32)
        feed = {
            # An exported model takes bytes with a scale from 0 to 1, as Unity's pictures are.
            _OBSERVATION: observations / (game.observation.scale or 1.0),
            ACTION_MASKS: game.masks(positions).astype(np.float32),
        }
        try:
            (found,) = self._session.run([DISCRETE_LOG_PROBS], feed)
        except Exception as error:
            raise self._failed(f"the model is not for {game.name}: {one_line(error)}") from error
        if found.shape != (len(positions), game.moves):
            raise self._failed(f"the model has {found.shape[-1]} moves; {game.name} has {game.moves}")
        chosen = [row[position.legal] for row, position in zip(found, positions, strict=True)]
        if not all(np.isfinite(each).all() for each in chosen):
            raise self._failed("its log-probabilities are not finite; export another checkpoint")
        return chosen

    def _opened(self) -> Any:
        try:
            model = read_regular(self._path, MAX_POLICY_BYTES)
            if self._path.suffix == ".pt":
                raise self._no_file("the file is a checkpoint to train on, not an exported model")
            if DISCRETE_LOG_PROBS.encode() not in model:
                raise self._failed(
                    f"the file is not a model with {DISCRETE_LOG_PROBS}: export it by a run of rollcast act boards"
                )
            return open_session(model + declared_output(DISCRETE_LOG_PROBS))
        except OSError as error:
            raise self._no_file(f"the file cannot be read: {error.strerror or error}") from None
        except ActorError:
            raise
        except Exception as error:
            raise self._failed(f"the file is not a model that can be run: {one_line(error)}") from error

    def _no_file(self, reason: str) -> ActorError:
        """Returns the error of a path that is no exported model; it names those beside it, or in it."""
        folder, same = self._path if self._path.is_dir() else self._path.parent, self._path.with_suffix(_MODEL)
        near = [same] if same.is_file() else sorted(folder.glob(f"*{_MODEL}"))[:_NEAR]
        hint = f"; there is {', '.join(map(str, near))}" if near else ""
        return ActorError(ExitCode.USAGE, f"{self._path}: {reason}{hint}")

    def _failed(self, reason: str) -> ActorError:
        return ActorError(ExitCode.POLICY_FAILED, f"{self._path}: {reason}")
