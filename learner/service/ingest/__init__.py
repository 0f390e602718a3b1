"""Checks, accounts for and queues what actors send: stops 5 and 6 of a step's path. Imports no torch."""
