"""Runs a scripted player: `python -m tests.players`."""

import sys

from tests.players.cli import main

sys.exit(main())
