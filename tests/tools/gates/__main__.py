"""Runs `python -m tests.tools.gates`."""

import sys

from tests.tools.gates.cli import main

sys.exit(main())
