"""Unity players: turns the calls of their `Exchange` into rows for the learner, and acts with its policies."""
