"""Runs `python -m tests.gpu`."""

import sys

from tests.gpu.cli import main

sys.exit(main())
