"""Environments as batches: observations, actions and ends of many episodes at a time, in the types of the wire.

`actor_client.envs.factory.make_env_batch` makes one. Nothing here imports gymnasium before an environment is made.
"""
