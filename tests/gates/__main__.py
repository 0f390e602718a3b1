"""Runs `python -m tests.gates`."""

import sys

from tests.gates.cli import main

sys.exit(main())
