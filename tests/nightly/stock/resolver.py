"""Resolves run files with ML-Agents' own code; runs under ML-Agents' interpreter, and imports nothing of this project.

Reads the paths of run files from the standard input, one a line, and writes a line of JSON for each: ``{"resolved": ...}``
or ``{"refused": ...}``.
"""

import json
import logging
import sys
import warnings

from mlagents.plugins.trainer_type import register_trainer_plugins  # type: ignore[import-not-found]
from mlagents.trainers.cli_utils import DetectDefault  # type: ignore[import-not-found]
from mlagents.trainers.learn import parse_command_line  # type: ignore[import-not-found]
from mlagents.trainers.settings import TrainerSettings  # type: ignore[import-not-found]


def main() -> None:
    """Answers line by line."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    register_trainer_plugins()
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        TrainerSettings.default_override = None
        DetectDefault.non_default_args.clear()
        try:
            answer = {"resolved": parse_command_line([line.rstrip("\n")]).as_dict()}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever its conversions raise ends the trainer
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
