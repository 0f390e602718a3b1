"""One client as the gateway's loop sees it."""


class ClientSimulator:
    """One client with a seat; a `Simulator` of the rollout."""
