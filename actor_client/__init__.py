"""The actor: steps environments with a local policy and streams what happened to a learner."""
