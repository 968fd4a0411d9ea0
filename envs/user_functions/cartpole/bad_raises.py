"""Bad: raises at once."""


def compute_observation(state):
    return state["cart_position"] @ state["pole_angle"][:1]
