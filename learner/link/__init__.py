"""The messages that the service and the trainers exchange, and the channels that carry them."""
