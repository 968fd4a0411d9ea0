"""Shared code of the commands that reproduce the paper's experiments."""
