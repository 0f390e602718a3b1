"""Reads the run file, ML-Agents' YAML and the service's own block, into one immutable tree."""
