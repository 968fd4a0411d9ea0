"""Controls: simple explanations of an evolved world's effect, to compare it with. ``experiments/controls.py`` runs
them.

``rows``       the controls themselves: each makes rows of the table
``table``      the table and its JSON
``baseline``   tuned agents on the task itself, which ship with this project
``hand_made``  policies that a person writes down in a line, for the classic tasks
``values``     value iteration: ideal potentials of finite tasks, and the optimum of a learned reward
``direct``     evolution of a policy, without any world

What a world pays most for is in ``envs/worlds/best_paid.py``.
Experts, the states that they visit, and the small networks that are fitted to them are in ``outer/distil/``.
"""
