"""The learner: receives experience, trains, publishes policies."""
