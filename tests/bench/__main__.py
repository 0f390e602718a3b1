"""Runs `python -m tests.bench`."""

import sys

from tests.bench.cli import main

sys.exit(main())
