"""Recording agents that come, ask when they like, and go: what a simulator with a scheduler of its own does."""
