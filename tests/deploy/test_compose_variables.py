"""Tests that what compose reads may be exported beside Rollcast's own commands."""

import re

import yaml

from actor_client.settings.commands import GymSettings
from actor_client.settings.loading import load
from learner.shared.settings.load import load_run_options
from tests.deploy.promql import DEPLOY

COMPOSE = DEPLOY.parent / "docker-compose.yml"
FILES = (*DEPLOY.parent.glob("docker-compose*.yml"), *(DEPLOY / "compose").iterdir())
NAMES = sorted({name for path in FILES for name in re.findall(r"\$\{(ROLLCAST_\w+)", path.read_text())})


def test_variables_of_compose_are_no_errors() -> None:
    """A learner and an actor start with all variables of the compose files in their environment; the learner says it ignores some."""
    environ = dict.fromkeys(NAMES, "1")
    assert {"ROLLCAST_RUN_FILE", "ROLLCAST_ACTOR_IMAGE"} <= environ.keys()
    loaded = load_run_options(DEPLOY / "runs" / "compose.yaml", environ=environ)
    assert loaded.options.rollcast.http_hosts == "1"
    assert any("only docker-compose.yml reads ROLLCAST_BIND, " in warning for warning in loaded.warnings)
    assert load(GymSettings, {"env": "X"}, environ).env == "X"


def test_links_name_the_published_port() -> None:
    """The learner knows at which address its page is published, and no overlay publishes another one."""
    learner = yaml.safe_load(COMPOSE.read_text())["services"]["learner"]
    (page,) = (port.removesuffix(":9464") for port in learner["ports"] if port.endswith(":9464"))
    assert learner["environment"]["ROLLCAST_PAGE_ADDRESS"] == page
    for path in set(FILES) - {COMPOSE}:
        if path.suffix == ".yml":
            assert "ports" not in yaml.safe_load(path.read_text())["services"].get("learner", {}), path
