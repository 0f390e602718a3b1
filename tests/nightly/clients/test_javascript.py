"""Tests the client in JavaScript in node and in a browser."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.processes import ROOT, Child, wait_until
from tests.nightly.browser.webdriver import Browser, driver_in
from tests.nightly.clients.conftest import Training, program
from tests.nightly.clients.physics import compare

PACKAGES = "/usr/share/nodejs"
"""Where Debian's packages for node are; those of node itself look there without being told."""
CLIENT = ROOT / "actor_client" / "clients" / "web" / "page" / "cartpole.js"
PHYSICS = """
const { Cart } = require(process.argv[1]);
const cart = new Cart(Math.random);
const [x, speed, angle, turn, ...pushes] = process.argv.slice(2).map(Number);
Object.assign(cart, { x, speed, angle, turn });
for (const push of pushes) {
  cart.push(push);
  console.log(...cart.observation, cart.state === "AGENT_STATE_ENDED" ? 1 : 0);
}
"""


def start(training: Training, address: str = "") -> Child:
    """Starts the client in node."""
    line = (str(CLIENT), address or training.web, "16")
    return training.processes.program("node", program("node"), *line, environment={"NODE_PATH": PACKAGES})


def test_it_trains_to_the_target(training: Training) -> None:
    """The client trains CartPole to a mean return of 475 over a WebSocket, and ends with the run."""
    client = start(training)
    training.is_trained_by(client, agents=16)
    assert "playing over a WebSocket" in client.err()


def test_it_trains_by_posting(training: Training) -> None:
    """The client posts its messages where it is told to, and trains as well."""
    client = start(training, f"http://{training.web}")
    training.is_trained_by(client, agents=16)
    assert "playing by POST" in client.err()


def test_a_page_trains_to_the_target(training: Training, tmp_path: Path) -> None:
    """A browser that opens the gateway's page trains the run to its end, without a complaint in its console."""
    wait_until(lambda: len(training.gateway.events("listening")) == 2, "both doors are open", said=training.said)
    with driver_in(tmp_path) as driver:
        window = Browser(driver, tmp_path / "profile")
        try:
            window.open(f"http://{training.web}/")
            training.ends()
            window.wait_for(lambda: "goodbye" in window.text("#state"), "the page hears of the end")
            assert window.complaints() == []
        finally:
            window.close()


def test_its_cart_is_that_of_gymnasium() -> None:
    """The cart goes as Gymnasium's CartPole-v1 does, and falls in the same step."""
    compare(str(program("node")), "-e", PHYSICS, "--", str(CLIENT))
