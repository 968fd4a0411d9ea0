"""Bad: returns a word."""


def compute_terminal(state):
    return "when it has fallen"
