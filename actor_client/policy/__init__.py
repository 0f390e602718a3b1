"""Stop 13 of a step's path: a policy received from the learner chooses actions."""
