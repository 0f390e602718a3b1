"""Stop 13: a policy received from the learner chooses actions."""
