"""Tests which files read the wall clock."""

import ast

from tests.architecture.tree import nodes, shown, sources

READERS = {"time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.strftime", "time.ctime"}
DATES = {"now", "utcnow", "today", "fromtimestamp"}
NAMES = DATES | {reader.partition(".")[2] for reader in READERS}
TOLD = {
    "actor_client/boards/records.py": "the day, in records of games",
    "actor_client/clients/access.py": "when a token expires, as its file says",
    "actor_client/connection/behavior.py": "a metric: when the acting version began to act",
    "actor_client/unity/dropin/cli.py": "people read it in logs",
    "actor_client/heartbeat.py": "the age of a file that does not hold the time",
    "learner/shared/runfolder/store.py": "when a checkpoint was made, in the list of them",
    "learner/training/writers/events.py": "TensorBoard shows it",
    "learner/training/writers/mlflow.py": "MLflow shows it",
    "learner/shared/observe/journal.py": "people read it in events",
    "learner/shared/observe/logs.py": "people read it in logs",
    "learner/training/matches/game_records.py": "the day, in records of games",
    "learner/training/trainers/base.py": "metrics: when the last update and version were made",
    "learner/shared/observe/meters.py": "a metric: when the last checkpoint was written",
    "learner/training/run/record.py": "people read it in the progress of a run",
    "learner/start/list_runs.py": "the age of files, for people",
    "learner/service/run/front.py": "a metric: when the learner started, read once",
    "learner/start/backup.py": "copies are named by their time",
    "learner/cli/certs.py": "a token that expires in the past is a typing error",
    "learner/service/ingest/session_ids.py": "the age of a session over restarts, which limits what only its actor says",
    "learner/service/identity/access.py": "when a token expires, as its file says",
    "learner/service/identity/authority.py": "since when and until when a certificate is valid",
    "protos/rollcast/auth.py": "writes the date on which a token expires",
}
"""Files that tell the time of day, and to whom. Of these, only ages of sessions and the dates of tokens and certificates decide anything."""


def _reads_the_wall_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module == "time":
        return any(f"time.{alias.name}" in READERS for alias in node.names)
    if not isinstance(node, ast.Attribute) or node.attr not in NAMES:
        return False
    return ast.unparse(node) in READERS or (
        node.attr in DATES and ast.unparse(node.value).endswith(("datetime", "date"))
    )


def test_the_wall_clock_is_for_people_alone() -> None:
    """Only listed files, which show the time of day, read the wall clock."""
    found = {shown(path) for path in sources() if any(map(_reads_the_wall_clock, nodes(path)))}
    assert found == set(TOLD)
