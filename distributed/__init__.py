"""Off-policy learning in several processes: collectors, a replay buffer, a learner, and their supervisor."""
