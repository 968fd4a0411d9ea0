"""Goal-conditioned tasks: a state, and a goal for some of its features; no other reward."""
