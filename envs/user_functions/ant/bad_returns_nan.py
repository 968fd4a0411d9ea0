"""Bad: a logarithm of velocities that may be negative."""


def compute_reward(state):
    return state["forward_velocity"].log()
