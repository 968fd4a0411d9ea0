"""Controls: simple explanations of an evolved world's effect, to compare it with. ``experiments/controls.py`` runs
them.

``policy``     episodes of a policy on the task, which every control ends with
``greedy``     what a world pays, taken as a policy: no agent is trained
``fit``        small networks fitted by supervised learning: classifiers, and bandits that teach a given policy
``hand_made``  policies that a person writes down in a line, for the classic tasks
``expert``     an agent trained on the task itself, and the states that it visits
``direct``     evolution of a policy, without any world
"""
