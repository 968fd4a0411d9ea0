"""Bad: one column too many."""


def compute_reward(state):
    return state["torso_velocity"][:, :1]
