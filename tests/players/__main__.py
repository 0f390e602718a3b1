"""`python -m tests.players`: a scripted player as a process."""

import sys

from tests.players.cli import main

sys.exit(main())
