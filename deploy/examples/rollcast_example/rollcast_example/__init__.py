"""Adds trainers, a reward signal, an encoder, a statistics writer and a callback to Rollcast."""
