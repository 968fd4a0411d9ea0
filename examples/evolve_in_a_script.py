"""Evolves a reward network for a gridworld, trains other agents with it, and uses it as a Gymnasium environment.

python3 examples/evolve_in_a_script.py [RESULTS]      about half a minute; the first run compiles a kernel
"""

import sys
from pathlib import Path

import envolve

CONFIG = Path(__file__).resolve().parents[1] / "default_config_gridworld_reward_env.yaml"
results = sys.argv[1] if len(sys.argv) > 1 else "results"

# Workers are processes of their own and do not import this file: no `if __name__ == "__main__"` is needed.
result = envolve.evolve(
    CONFIG,
    seed=1,
    workers=1,
    results_dir=results,
    overrides={"agents.gtn.max_iterations": 3, "agents.gtn.num_workers": 8, "agents.gtn.comparison_agents": 4},
)
print(f"score {result.score:.0f} after {result.generations} generations, in {result.run_dir}")

figures = envolve.evaluate(result.world, agents=5)
print(f"Q-learning: return {figures.world.mean_return:.1f} after {figures.world.mean_train_steps:.0f} steps in it")
print(figures)

env = envolve.load_world(result.world)
observation, _ = env.reset(seed=0)
observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
print(f"one step in it: state {observation}, reward {reward:.3f}")
