"""Adds trainers, a reward signal, an encoder, a statistics writer, a callback and an actor to Rollcast."""
