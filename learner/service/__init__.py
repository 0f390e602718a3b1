"""Receives experience and sends policies: the process of the learner that actors, operators and scrapers connect to."""
