"""Physics engines behind one interface, ``simulator.Simulator``."""

from envolve.envs.sim.opengl import choose_opengl

choose_opengl()  # before anything imports mujoco
