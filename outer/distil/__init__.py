"""Teaching by a world: an expert's policy, played and fitted by a contextual bandit. Python 3.8: workers run this."""
