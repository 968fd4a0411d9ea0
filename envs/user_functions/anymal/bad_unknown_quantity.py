"""Bad: reads what the state does not have."""


def compute_reward(state):
    return -(state["base_height"] - 0.45).abs()
