"""The run file: ML-Agents' YAML and the service's own block, read into one frozen tree."""
