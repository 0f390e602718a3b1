"""Runs a scripted player: `python -m tests.tools.players`."""

import sys

from tests.tools.players.cli import main

sys.exit(main())
