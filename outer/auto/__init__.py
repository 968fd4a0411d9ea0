"""``envolve evolve``: from the id of an environment to a plan, a world, and a report of what it taught.

``facts.py`` asks a child process what the environment is like and how fast it is (``probe.py``). ``plan.py`` makes a
configuration of that, a pure function. ``unseen.py`` trains one agent that never saw the world, ``report.py`` all of
them, and ``sentence.py`` says in one sentence what came out.
"""
