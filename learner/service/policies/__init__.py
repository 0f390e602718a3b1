"""Keeps the newest policies and sends them to actors."""
