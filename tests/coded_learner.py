"""Runs the learner's command line with encoded messages between service and trainers.

``ROLLCAST_TEST_LEARNER=tests.coded_learner python -m pytest tests/e2e -m "slow or not slow"`` runs the end-to-end tests with
it.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.coded_link import coded


def main() -> int:
    """Runs a command and returns its exit code."""
    from learner import app, cli
    from learner.commands import evaluate_run, tournament_run

    app.serve = partial(app.serve, transport=coded)
    evaluate_run.evaluate = partial(evaluate_run.evaluate, transport=coded)
    tournament_run.hold = partial(tournament_run.hold, transport=coded)
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
