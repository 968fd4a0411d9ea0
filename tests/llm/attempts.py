"""Individuals of an evolution that never was, for tests of what is shown of one."""

from __future__ import annotations

import numpy as np

from envolve.envs.graph.file import GraphFile
from envolve.llm.search.individual import HUMAN, Individual

CODE = """\
def compute_reward(state):
    speed_weight = 1.5
    return speed_weight * state["forward_velocity"] - 0.1
"""


def graph_file(*values: float) -> GraphFile:
    """speed_weight * forward_velocity - value, with these two numbers."""
    nodes = [
        {"op": "aten.mul.Tensor", "args": [{"in": 0}, {"param": 0}]},
        {"op": "aten.sub.Tensor", "args": [{"node": 0}, {"param": 1}]},
    ]
    names = ("speed_weight", "reward_1")
    return GraphFile(
        {
            "envolve_graph": 1,
            "task": "Ant",
            "action_size": None,
            "params": [{"name": n, "value": v, "scale": abs(v)} for n, v in zip(names, values)],
            "functions": {
                "compute_reward": {
                    "inputs": ["forward_velocity"],
                    "nodes": nodes,
                    "outputs": [{"node": 1}],
                    "names": ["total"],
                }
            },
            "source": CODE,
        }
    )


def human() -> Individual:
    curves = {"score": [0.1, 0.9], "reward": [1.0, 2.0]}
    return Individual(
        -1,
        0,
        0,
        HUMAN,
        (),
        "",
        -1,
        score=1.0,
        interval=(0.8, 1.2),
        agent_scores=[0.9, 1.1],
        curves=curves,
        steps=40_000,
    )


def evolution(iterations: int, samples: int, islands: int = 1, seed: int = 0) -> list[Individual]:
    """Scores rise from about 0 to above 1; a third are rejected, some fail."""
    rng = np.random.default_rng(seed)
    out: list[Individual] = []
    for iteration in range(iterations):
        for k in range(samples):
            number, island = len(out), k % islands
            before = [i for i in out if i.island == island and i.ok and i.iteration < iteration]
            parents: tuple[int, ...] = ()
            operator = "initial"
            if before:
                best = max(before, key=lambda i: i.score)
                operator = "crossover" if len(before) > 2 and k % 4 == 3 else "improve"
                parents = (best.id, before[0].id) if operator == "crossover" and before[0] is not best else (best.id,)
            i = Individual(number, iteration, island, operator, parents, ["gpt-a", "llama-b"][k % 2], number, reply="r")
            kind = rng.random()
            if kind < 0.3:
                i.rejection = (["extract", "allowlist", "trace", "smoke"][int(rng.integers(4))], "line 3: no | while")
            else:
                i.code, i.graph_file, i.steps = CODE, graph_file(1.5, 0.1), 40_000
                if kind < 0.36:
                    i.failure = "NotFinite: compute_reward returned nan\nTraceback ..."
                else:
                    i.score = float(0.3 * iteration + 0.4 * rng.normal() - 3 * (rng.random() < 0.05))
                    i.interval = (i.score - 0.15, i.score + 0.1)
                    i.agent_scores = [i.score - 0.1, i.score + 0.1]
                    i.curves = {"score": [0.0, i.score], "reward": [0.5, 1.0], "speed|x": [0.1, float("nan")]}
            out.append(i)
    return out
