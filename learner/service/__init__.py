"""Stops 5 and 11 of a step's way: gRPC in and out. Imports no torch, and meets the trainers only at queue and store."""
