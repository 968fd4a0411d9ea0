"""An outer loop in miniature: what a run asks its workers, the right answers, and where it must end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import torch

from envolve.outer.exchange.messages import Chunk


@dataclass
class SmallRun:
    """An outer loop in miniature; what it holds is its checkpoint, on a disk of its own."""

    id: str
    psi: float
    generations: int
    chunks: int
    members: int
    calls: int  # of evaluate per generation, with the same names but another mode
    generation: int = 0
    results: Tuple[float, ...] = ()

    def questions(self, call: int, incarnation: int) -> List[Chunk]:
        config = {"agents": {"gtn": {"num_threads_per_worker": 1}}, "incarnation": incarnation}
        chunks = []
        for i in range(self.chunks):
            seeds = torch.arange(self.members) + 100 * i + 10_000 * self.generation
            worlds = torch.stack([torch.full((self.members,), self.psi), seeds % 97 / 97.0], 1)
            chunks.append(Chunk(self.id, self.generation + 1, i, 0, f"mode {call}", config, worlds, seeds))
        return chunks

    def learn(self, scores: List[float]) -> None:
        """Depends on all scores and their order. A member without a score counts as zero."""
        scores = [0.0 if math.isnan(s) else s for s in scores]
        self.psi = 0.5 * self.psi + sum(s / (i + 2) for i, s in enumerate(scores)) / len(scores)
        self.generation += 1
        self.results += (self.psi,)

    def undisturbed(self, deadly: bool = False) -> Tuple[float, ...]:
        run = SmallRun(self.id, self.psi, self.generations, self.chunks, self.members, self.calls)
        while run.generation < run.generations:
            scores: List[float] = []
            for call in range(run.calls):
                for chunk in run.questions(call, 0):
                    right = right_answer(chunk)["score"].tolist()
                    scores += [math.nan] * len(right) if deadly and is_deadly(chunk.seeds, chunk.mode) else right
            run.learn(scores)
        return run.results


def is_deadly(seeds: torch.Tensor, mode: str) -> bool:
    """The first chunk of the first generation."""
    return int(seeds[0]) == 0 and mode == "mode 0"


def right_answer(chunk: Chunk) -> Dict[str, Any]:
    score = chunk.worlds.double().sum(1) * (1.0 + len(chunk.mode) + int(chunk.mode[-1])) / 7.0
    origin = torch.full((len(chunk.seeds),), chunk.config["incarnation"])
    return {"score": score, "seed": chunk.seeds, "origin": origin, "reason": [""] * len(chunk.seeds)}
