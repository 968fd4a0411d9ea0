"""Bad: a name of another task's state."""


def compute_reward(state):
    return state["base_lin_vel"][:, 0]
