"""Defines the commands of people: flags, printing, signals, exit codes."""
