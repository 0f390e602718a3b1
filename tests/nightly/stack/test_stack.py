"""Tests docker-compose.yml on a real engine."""

import json
from pathlib import Path

import pytest

from tests.nightly.stack.boards import queries, series, wait_for_series
from tests.nightly.stack.conftest import Stopped, Training
from tests.nightly.stack.machine import wait_until
from tests.nightly.stack.scrapes import Scrape

pytestmark = pytest.mark.timeout(1800)

MIN_VERSIONS = 20
MIN_PANELS = 20
MATCHES = frozenset({"Self-play", "Evaluations against opponents"})
"""Rows of the boards without series in a run of one agent."""


def test_the_policy_is_published_again_and_again(training: Training) -> None:
    """At least 20 versions are published in the first minute."""
    assert training.watcher.last is not None
    assert training.watcher.last.total("policy_version") >= MIN_VERSIONS


def test_the_actors_learn(training: Training) -> None:
    """After a minute the mean return of the last 100 episodes exceeds that of the first 100."""
    begin, last = training.watcher.begin, training.watcher.last
    assert begin is not None
    assert last is not None
    assert last.total("episode_return_mean") > begin.total("episode_return_mean")


def test_prometheus_scrapes_the_learner_and_both_actors(training: Training) -> None:
    """The learner and both actors are scraped."""
    wait_until(lambda: len(training.prometheus.healthy_targets("learner")) == 1, "the learner scraped", seconds=30)
    wait_until(lambda: len(training.prometheus.healthy_targets("actor")) == 2, "two actors scraped", seconds=30)


def test_both_actors_swap_policies(training: Training) -> None:
    """Each actor takes more than its first version."""
    swaps = wait_until(
        lambda: [
            found
            for found in [training.prometheus.instant('rollcast_actor_policy_swaps_total{outcome="ok"}')]
            if len(found) == 2 and all(one.values[0] >= 2 for one in found)
        ],
        "two actors with swaps",
        seconds=30,
    )
    assert len(swaps[0]) == 2


def test_every_query_of_the_boards_gives_series(training: Training) -> None:
    """No panel of a board is empty but for matches, and at least 20 show a value other than zero."""
    asked = queries(training.stack.clone / "deploy" / "grafana" / "dashboards")
    assert {query.board for query in asked} == {"Is training healthy?", "Where is the bottleneck?"}
    asked = [query for query in asked if query.row not in MATCHES]
    wait_for_series(asked, training.prometheus)
    lively = {
        (query.board, query.panel)
        for query in asked
        if any(one.is_something() for one in series(query, training.prometheus))
    }
    assert len(lively) >= MIN_PANELS


def test_the_rules_are_evaluated(training: Training) -> None:
    """All rules are loaded without errors, and no alert fires on a healthy run."""
    failures = training.prometheus.instant("sum(prometheus_rule_evaluation_failures_total)")
    assert failures[0].values == (0.0,)
    assert training.prometheus.instant("sum(prometheus_rule_group_rules)")[0].is_something()
    firing = training.prometheus.instant('ALERTS{alertstate="firing", severity="critical"}')
    assert [one.labels["alertname"] for one in firing] == []


def test_the_operators_commands_work_in_the_container(training: Training) -> None:
    """`docker compose exec learner rollcast status` works, and its books balance."""
    text = training.stack.execute(
        "learner", "rollcast", "status", "--run-id=rollcast", "--results-dir=/results", "--json"
    )
    assert len(json.loads(text)["actors"]) == 2


def test_a_third_actor_is_scraped(scaled: Training) -> None:
    """`--scale actor=3` adds an actor that Prometheus finds without a restart."""
    wait_until(lambda: len(scaled.prometheus.healthy_targets("actor")) == 3, "three actors scraped", seconds=60)


def test_what_is_killed_is_started_again_and_goes_on(scaled: Training, crashed: tuple[Scrape, Scrape]) -> None:
    """The engine restarts a killed learner and actor, and the run continues in the next generation."""
    before, after = crashed
    assert after.total("generation") == before.total("generation") + 1
    for service, number in (("learner", 1), ("actor", 3)):
        assert sum(container["RestartCount"] for container in scaled.stack.containers(service)) == 1
        assert len(scaled.stack.containers(service)) == number


def test_the_ledger_balances_in_every_scrape(scaled: Training, crashed: object) -> None:
    """Received steps are trained, dropped, queued or lost in every scrape, also after a crash."""
    assert scaled.watcher.number >= 100
    assert scaled.watcher.unbalanced == []
    assert scaled.watcher.last is not None
    assert scaled.watcher.last.total("env_steps_trained_total") > 0


def test_stop_ends_everything_in_good_order(stopped: Stopped) -> None:
    """After `docker compose stop` each container has exit code 0, and the run folder has a checkpoint."""
    assert stopped.exit_codes == {"learner": [0], "actor": [0, 0, 0], "prometheus": [0]}, stopped.stack.logs("learner")
    assert (stopped.run_folder / "run_state.pt").stat().st_size > 0
    assert list((stopped.run_folder / "CartPole").glob("*.pt"))


def test_a_backup_restores_the_run(stopped: Stopped, restored: Path) -> None:
    """The commands of deploy/README.md restore every file unchanged."""

    def content(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert content(restored) == content(stopped.run_folder)


def test_up_goes_on_with_the_same_run(stopped: Stopped, again: Scrape) -> None:
    """The run continues under its id in the next generation, with steps that increase and books that balance."""
    assert again.label("run_info", "run_id") == stopped.last.label("run_info", "run_id") == "rollcast"
    assert again.total("generation") == stopped.last.total("generation") + 1
    assert again.total("env_steps_taken_total") >= stopped.last.total("env_steps_taken_total")
    assert again.total("policy_version") > 0
    assert again.imbalance() == 0
