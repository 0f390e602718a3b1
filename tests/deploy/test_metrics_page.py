"""Tests that the page of metrics is that of the code."""

import pytest

from tests.deploy.metrics_page import PAGE, actor_text, exported, filled, learner_text, names


@pytest.mark.parametrize(("part", "text"), [("The learner", learner_text()), ("The actor", actor_text())])
def test_every_metric_has_a_row(part: str, text: bytes) -> None:
    """Each metric of the program has one row in its part of the page, and each row a metric."""
    assert b"_created" not in text, "the client library's series are left out"
    assert sorted(names(PAGE.read_text(encoding="utf-8"), part)) == sorted(exported(text))


def test_the_rows_are_those_of_the_code() -> None:
    """Types, labels and meanings are those that the programs export."""
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run python -m tests.deploy.metrics_page"
