"""Genetic programming over checked graphs: rewards without a language model (Koza 1992, Genetic Programming).

Parents are drawn by rank from the best so far. A child is a new sum of terms, a parent with a mutation, or a parent
into which an expression of another was put. Only expressions of one type stand in for each other, so every child is a
valid graph; one that is not finite on real state of the task, or computes what an earlier one computes, is drawn again.
All random numbers are a function of the seed and of the child's number.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from envolve.envs.graph.file import GraphFile
from envolve.envs.graph.values import GraphError
from envolve.envs.physics.task import PhysicsTask
from envolve.llm.search.graphs import (
    Expression,
    Input,
    Op,
    Param,
    Type,
    decode,
    encode,
    is_reward,
    params_of,
    replaced,
    types,
    walk,
)
from envolve.llm.search.greedy import Memory, drawn_rank
from envolve.llm.search.individual import CROSSOVER, IMPROVE, INITIAL, Individual, Proposal, ranking
from envolve.llm.search.novelty import features

MODEL = "genetic programming"
STREAM = 0x6770  # of random numbers
SURVIVORS = 16  # parents
TRIES = 50  # until a child is taken as it is
SHARES = {INITIAL: 0.15, IMPROVE: 0.55, CROSSOVER: 0.30}
UNARY = ("abs", "neg", "tanh", "square", "cos", "sin", "sigmoid", "relu", "exp")
BINARY = ("add.Tensor", "sub.Tensor", "mul.Tensor", "maximum.default", "minimum.default")
STEP = 0.5  # of the logarithm of a number that is moved
SCALAR: Type = ((), "torch.float32")


class Genetic(Memory):
    """A search that proposes graphs. samples: per iteration; example: state of the task, [n, ...] by name; human: the
    human's reward, which then is a parent once it has a score."""

    prompts: Any = None  # there is no model to ask

    def __init__(
        self,
        task: type[PhysicsTask],
        example: Mapping[str, torch.Tensor],
        samples: int,
        seed: int,
        human: GraphFile | None = None,
    ) -> None:
        super().__init__()
        if samples < 1:
            raise ValueError(f"found {samples} samples, expected at least one")
        fixed = {name for name, p in task.parameters.items() if p.low == p.high}
        self.task, self.samples, self.seed, self.human_graph = task, samples, seed, human
        self.example = {name: t for name, t in example.items() if name not in fixed and name != "progress"}
        self._given = dict(example)

    def ask(self, iteration: int) -> list[Proposal]:
        known = self.before(iteration)
        parents = ranking(known)[:SURVIVORS]
        seen = {_key(i.graph_file) for i in known if i.graph_file is not None}
        out: list[Proposal] = []
        for k in range(self.samples):
            rng = np.random.default_rng([self.seed, STREAM, iteration, k])
            operator, chosen, graph_file = self._child(rng, parents, seen)
            seen.add(_key(graph_file))
            out.append(Proposal(operator, tuple(i.id for i in chosen), 0, MODEL, (), graph_file))
        return out

    def _adopted(self, iteration: int) -> list[Individual]:
        human = self.human(iteration)
        if self.human_graph is None or human is None or not human.ok:
            return []
        return [replace(human, operator=INITIAL, graph_file=self.human_graph)]

    def _child(
        self, rng: np.random.Generator, parents: Sequence[Individual], seen: set[str]
    ) -> tuple[str, list[Individual], GraphFile]:
        fallback: tuple[str, list[Individual], GraphFile] | None = None
        for attempt in range(TRIES + 1):
            operator = str(rng.choice(list(SHARES), p=list(SHARES.values()))) if parents else INITIAL
            operator = INITIAL if attempt == TRIES else operator
            count = {INITIAL: 0, IMPROVE: 1, CROSSOVER: 2}[operator]
            chosen = [parents[drawn_rank(rng, len(parents))] for _ in range(count)]
            try:
                graph_file = encode(self._made(rng, operator, chosen), self.task.name)
            except GraphError:
                continue
            if not is_reward(graph_file, self._given):
                continue
            fallback = operator, list({i.id: i for i in chosen}.values()), graph_file
            if _key(graph_file) not in seen:
                return fallback
        assert fallback is not None, "no reward of this task's state is finite"
        return fallback

    def _made(self, rng: np.random.Generator, operator: str, chosen: Sequence[Individual]) -> Expression:
        if operator == INITIAL:
            return self.terms(rng)
        total = decode(chosen[0].graph_file or {})
        if operator == CROSSOVER:
            return self.crossed(rng, total, decode(chosen[1].graph_file or {}))
        for _ in range(1 + int(rng.random() < 0.3)):
            total = self.mutated(rng, total)
        return total

    # ----------------------------------------------------------------------------------------------------- expressions

    def terms(self, rng: np.random.Generator) -> Expression:
        """A sum of one to four weighted terms."""
        total = self.term(rng)
        for _ in range(int(rng.integers(0, 4))):
            total = _op("add.Tensor", total, self.term(rng))
        return total

    def term(self, rng: np.random.Generator) -> Expression:
        """A quantity of the state as one number for each environment, shaped, with a weight."""
        name = str(rng.choice(sorted(self.example)))
        shape = self.example[name].shape[1:]
        x: Expression = Input(name)
        if len(shape) == 1 and rng.random() < 0.5:
            x = _op("select.int", x, 1, int(rng.integers(shape[0])))
        elif shape:
            x = _op("linalg_vector_norm.default", x, 2, list(range(1, 1 + len(shape))))
        size = max(1e-3, float(self.example[name].abs().mean()))
        if rng.random() < 0.3:
            x = _op("sub.Tensor", x, Param(f"{name}_target", _rounded(size * rng.normal())))
        scale = Param(f"{name}_scale", _rounded(size * float(np.exp(rng.normal()))))
        form = int(rng.integers(4))
        if form == 0:  # exp(-|x| / scale)
            x = _op("exp.default", _op("neg.default", _op("div.Tensor", _op("abs.default", x), scale)))
        elif form == 1:
            x = _op("tanh.default", _op("div.Tensor", x, scale))
        elif form == 2:
            x = _op("clamp.default", _op("square.default", _op("div.Tensor", x, scale)), None, 10.0)
        weight = _rounded(float(np.exp(0.7 * rng.normal())) * (1 if rng.random() < 0.6 else -1))
        return _op("mul.Tensor", x, Param(f"{name}_weight", weight))

    def mutated(self, rng: np.random.Generator, total: Expression) -> Expression:
        """One change."""
        kinds: list[Callable[[np.random.Generator, Expression], Expression]] = [
            self._numbers, self._numbers, self._other_operation, self._without, self._with_term, self._other_part,
            self._wrapped,
        ]  # fmt: skip
        return kinds[int(rng.integers(len(kinds)))](rng, total)

    def crossed(self, rng: np.random.Generator, total: Expression, other: Expression) -> Expression:
        """An expression of the other in the place of one of the same type, or added to the whole."""
        donors = self._typed(other)
        own = self._typed(total)
        pairs = {t: ([x for x, u in own if u == t], [x for x, u in donors if u == t]) for _, t in own}
        fitting = sorted((t for t, (a, b) in pairs.items() if a and b), key=str)
        if not fitting or rng.random() < 0.4:
            scalars = [x for x, t in donors if t == SCALAR]
            return _op("add.Tensor", total, scalars[int(rng.integers(len(scalars)))]) if scalars else total
        a, b = pairs[fitting[int(rng.integers(len(fitting)))]]
        return replaced(total, a[int(rng.integers(len(a)))], b[int(rng.integers(len(b)))])

    def _typed(self, total: Expression) -> list[tuple[Expression, Type]]:
        found = types(total, self._given)
        return [(x, found[id(x)]) for x in walk(total) if id(x) in found and _changes(x)]

    def _scalars(self, total: Expression) -> list[Expression]:
        return [x for x, t in self._typed(total) if t == SCALAR]

    def _numbers(self, rng: np.random.Generator, total: Expression) -> Expression:
        params = params_of(total)
        if not params:
            return self._with_term(rng, total)
        for p in [params[int(rng.integers(len(params)))] for _ in range(1 + int(rng.integers(2)))]:
            p.value = _rounded(p.value * float(np.exp(STEP * rng.normal())) * (-1 if rng.random() < 0.1 else 1))
        return total

    def _other_operation(self, rng: np.random.Generator, total: Expression) -> Expression:
        plain = [x for x in walk(total) if isinstance(x, Op) and x.name.split(".")[1:2] and _pool(x)]
        if not plain:
            return self._with_term(rng, total)
        x = plain[int(rng.integers(len(plain)))]
        assert isinstance(x, Op)
        names = [n for n in _pool(x) if n != x.name]
        x.name = names[int(rng.integers(len(names)))]
        return total

    def _without(self, rng: np.random.Generator, total: Expression) -> Expression:
        """An operation with one of its operands in its place."""
        found = types(total, self._given)
        options = [
            (x, a) for x in walk(total) if isinstance(x, Op) and id(x) in found
            for a in x.args if isinstance(a, (Op, Input)) and found.get(id(a)) == found[id(x)]
        ]  # fmt: skip
        if not options:
            return self._with_term(rng, total)
        x, a = options[int(rng.integers(len(options)))]
        return replaced(total, x, a)

    def _with_term(self, rng: np.random.Generator, total: Expression) -> Expression:
        return _op("add.Tensor", total, self.term(rng))

    def _other_part(self, rng: np.random.Generator, total: Expression) -> Expression:
        """A new term in the place of a number for each environment."""
        scalars = self._scalars(total)
        if not scalars:
            return self._with_term(rng, total)
        return replaced(total, scalars[int(rng.integers(len(scalars)))], self.term(rng))

    def _wrapped(self, rng: np.random.Generator, total: Expression) -> Expression:
        """A function of a part, or a part times another."""
        scalars = self._scalars(total)
        if not scalars:
            return self._with_term(rng, total)
        old = scalars[int(rng.integers(len(scalars)))]
        if rng.random() < 0.5:
            new = _op(f"{UNARY[int(rng.integers(len(UNARY)))]}.default", old)
        else:
            new = _op(BINARY[int(rng.integers(len(BINARY)))], old, self.term(rng))
        return new if total is old else _around(total, old, new)


def _around(total: Expression, old: Expression, new: Op) -> Expression:
    """``new``, which reads ``old``, in its place."""
    twin = copy.copy(old)
    new.args = [twin if a is old else a for a in new.args]
    return replaced(total, old, new)


def _op(name: str, *args: Any) -> Op:
    return Op(f"aten.{name}", list(args))


def _pool(x: Op) -> list[str]:
    """Operations that may stand for this one: with the same operands, of the same type."""
    name = x.name.removeprefix("aten.")
    if name in BINARY and all(isinstance(a, (Op, Input)) for a in x.args) and not x.kwargs:
        return [f"aten.{n}" for n in BINARY]
    if name.removesuffix(".default") in UNARY and len(x.args) == 1 and not x.kwargs:
        return [f"aten.{n}.default" for n in UNARY]
    return []


def _changes(x: Expression) -> bool:
    return not (isinstance(x, Op) and x.constant is not None)


def _rounded(x: float) -> float:
    """Three figures, as people write."""
    return float(f"{x:.3g}") or 0.001


def _key(graph_file: Mapping[str, Any]) -> str:
    """Equal for rewards that compute the same with the same numbers."""
    found = features(graph_file, True)[-1]
    numbers = sorted(float(p["value"]) for p in graph_file["params"])
    return f"{sorted(found.items())} {numbers}"
