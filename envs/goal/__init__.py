"""Goal-conditioned tasks: a state, a goal that some of its features should come near to, and no other reward."""
