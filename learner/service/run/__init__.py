"""The learner's side that faces actors, operators and browsers: its event loop, its ports and the status shown there."""
