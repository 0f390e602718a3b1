"""gRPC in and out: stops 5 and 11 of a step's path. Imports no torch and reaches trainers only over `learner.link`."""
