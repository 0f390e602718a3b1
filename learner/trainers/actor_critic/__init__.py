"""What the actor-critic trainers share: experience, minibatches, epochs and what is reported of them."""
