"""Stops 7 and 8 of a step's path: host staging, the ring on the training device, and minibatches drawn from it.

The same code runs on a CPU, where the ring is ordinary memory and nothing is staged.
"""
