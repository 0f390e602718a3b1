"""Batches of environments, with observations, actions and episode ends in the types of the wire.

`actor_client.envs.factory.make_env_batch` makes a batch. gymnasium is not imported before an environment is made.
"""
