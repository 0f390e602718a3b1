"""Code shared by the actor-critic trainers: experience, minibatches, epochs and reports."""
