"""Learns from experience: the process of the trainers."""
