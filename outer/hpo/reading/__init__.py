"""Reads the YAML files of studies: sections, values, checks, the search space."""
