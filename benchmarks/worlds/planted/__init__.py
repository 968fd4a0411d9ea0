"""Learners with one planted bug, to see what shows it."""
