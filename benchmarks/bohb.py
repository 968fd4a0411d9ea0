#!/usr/bin/env python3
"""What searches over configurations find: regret after the price of 60 full evaluations, over seeds.

    python3 benchmarks/bohb.py [--seeds 10] [--only NAME ...] [--json FILE]

Budgets 1, 3, 9, 27; every evaluation costs its budget, also where it repeats a configuration at a larger one. Regret is
the true loss, less the least possible one, of the configuration with the lowest loss seen at budget 27.

hartmann6: six numbers in [0, 1]. As in Kandasamy et al. 2017 (https://arxiv.org/abs/1703.06240) cheap evaluations are
biased, each of the four weights by -0.1 (1 - z) with z = budget / 27; here they also have noise, of standard deviation
0.1 / sqrt(z). countingones (Falkner et al. 2018, https://arxiv.org/abs/1807.01774): 8 categorical parameters, each 0 or
1, and 8 probabilities p; the loss is minus the sum of the first and of the means of as many Bernoulli(p) as the budget.
styblinski: the Styblinski-Tang function per number of 4, half of the numbers logarithmic, one integer, and two numbers
that count only under the right one of three kinds; noise as above. It is here so that nothing gets tuned to the other
two alone.

The peers run as their manuals say: optuna with TPE and its Hyperband; hpbandster over Pyro on this machine, in a
process of its own with a time limit, for it can hang, and with this project's truncated normal numbers, which are as
good as scipy's and take a third of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ConfigSpace as CS
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.outer.hpo.search import make_search, plain

MOST, ETA, FULL = 27.0, 3, 60
LIMIT = 300.0  # seconds for one run of hpbandster

A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
P = 1e-4 * np.array([
    [1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381],
])  # fmt: skip
WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])


class Spent(Exception):
    """The price of all evaluations together has been paid."""


class Function:
    """A space, the loss in it, and who has paid how much for looking."""

    least = 0.0  # of true()

    def __init__(self, seed: int) -> None:
        self.noise = np.random.default_rng([seed, 77])
        self.spent, self.best = 0.0, (math.inf, math.inf)  # loss seen at the full budget, regret

    def __call__(self, values: Mapping[str, Any], budget: float) -> float:
        """A loss to be minimised. Raises Spent."""
        if self.spent >= FULL * MOST:
            raise Spent
        self.spent += budget
        loss = float(self.observe(values, budget))
        if budget == MOST:
            self.best = min(self.best, (loss, float(self.true(values)) - self.least))
        return loss

    def space(self) -> CS.ConfigurationSpace:
        raise NotImplementedError

    def true(self, values: Mapping[str, Any]) -> float:
        raise NotImplementedError

    def observe(self, values: Mapping[str, Any], budget: float) -> float:
        return self.true(values) + 0.1 * math.sqrt(MOST / budget) * self.noise.normal()


class Hartmann6(Function):
    least = -3.32237

    def space(self) -> CS.ConfigurationSpace:
        return CS.ConfigurationSpace({f"x{i}": (0.0, 1.0) for i in range(6)})

    def true(self, values: Mapping[str, Any], bias: float = 0.0) -> float:
        x = np.array([values[f"x{i}"] for i in range(6)])
        return -float((WEIGHTS - bias) @ np.exp(-(A * (x - P) ** 2).sum(1)))

    def observe(self, values: Mapping[str, Any], budget: float) -> float:
        biased = self.true(values, 0.1 * (1 - budget / MOST))
        return biased + 0.1 * math.sqrt(MOST / budget) * self.noise.normal()


class CountingOnes(Function):
    least = -16.0

    def space(self) -> CS.ConfigurationSpace:
        space = CS.ConfigurationSpace()
        space.add([CS.Categorical(f"c{i}", [0, 1]) for i in range(8)] + [CS.Float(f"p{i}", (0, 1)) for i in range(8)])
        return space

    def true(self, values: Mapping[str, Any]) -> float:
        return -float(sum(values.values()))

    def observe(self, values: Mapping[str, Any], budget: float) -> float:
        drawn = self.noise.binomial(int(budget), [values[f"p{i}"] for i in range(8)]) / int(budget)
        return -float(sum(values[f"c{i}"] for i in range(8)) + drawn.sum())


class Styblinski(Function):
    least = -39.16599  # of the mean over all six terms, each of which is least at -2.903534

    def space(self) -> CS.ConfigurationSpace:
        space, log = CS.ConfigurationSpace(), (10**-5.0, 10**5.0)
        kind, near = CS.Categorical("kind", ["p", "q", "r"]), CS.Float("near", (-5, 5))
        c, d, far = (CS.Float(name, log, log=True) for name in ("c", "d", "far"))
        space.add([CS.Float("a", (-5, 5)), CS.Integer("b", (-50, 50)), c, d, kind, near, far])
        space.add([CS.InCondition(near, kind, ["q", "r"]), CS.EqualsCondition(far, kind, "q")])
        return space

    def true(self, values: Mapping[str, Any]) -> float:
        v = {"near": 0.0, "far": 1.0, **values}
        x = np.array([v["a"], v["b"] / 10, *(math.log10(v[name]) for name in "cd"), v["near"], math.log10(v["far"])])
        return float((x**4 - 16 * x**2 + 5 * x).mean() / 2)

    def observe(self, values: Mapping[str, Any], budget: float) -> float:
        return self.true(values) + math.sqrt(MOST / budget) * self.noise.normal()


FUNCTIONS = {"hartmann6": Hartmann6, "countingones": CountingOnes, "styblinski": Styblinski}
Contestant = Callable[[Function, int], None]  # evaluates until Spent


def ours(backend: str, bracket: str = "hyperband") -> Contestant:
    def run(f: Function, seed: int) -> None:
        search = make_search(backend, f.space(), (1, MOST, ETA), bracket=bracket, seed=seed, random_fraction=1 / 3)
        while True:
            trial = search.ask()
            search.tell(trial.id, f(trial.values, trial.budget))

    return run


def plain_random(f: Function, seed: int) -> None:
    space = f.space()
    space.seed(seed + 1000)
    while True:
        f(plain(space.sample_configuration()), MOST)


def optuna_itself(f: Function, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = f.space()

    def objective(trial: optuna.Trial) -> float:
        values: dict[str, Any] = {}
        for name, p in space.items():
            conditions = space.parent_conditions_of[name]
            if any(values.get(c.parent.name) not in (getattr(c, "values", None) or [c.value]) for c in conditions):
                continue
            if hasattr(p, "choices"):
                values[name] = trial.suggest_categorical(name, list(p.choices))
            else:
                suggest = trial.suggest_int if "Integer" in type(p).__name__ else trial.suggest_float
                values[name] = suggest(name, p.lower, p.upper, log=p.log)
        for budget in (1, 3, 9, 27):
            loss = f(values, float(budget))
            trial.report(loss, budget)
            if budget < MOST and trial.should_prune():
                raise optuna.TrialPruned
        return loss

    study = optuna.create_study(
        study_name=f"benchmark {seed}",
        sampler=optuna.samplers.TPESampler(multivariate=True, seed=seed),
        pruner=optuna.pruners.HyperbandPruner(1, int(MOST), ETA),
    )
    study.optimize(objective)


def hpbandster_itself(f: Function, seed: int) -> None:
    """Name server, worker and master. With NumPy 2 it hangs where a number of NumPy goes over Pyro: every one is made
    Python's here, in jobs and in losses."""
    import hpbandster.core.dispatcher as dispatcher
    import hpbandster.core.nameserver as nameserver
    from hpbandster.core.worker import Worker
    from hpbandster.optimizers import BOHB

    import envolve.outer.hpo.bohb  # noqa: F401 # for its truncated normal numbers

    def clean(o: Any) -> Any:
        if isinstance(o, dict):
            return {clean(k): clean(v) for k, v in o.items()}
        if isinstance(o, (list, tuple)):
            return type(o)(map(clean, o))
        return o.item() if isinstance(o, np.generic) else o

    job = dispatcher.Job.__init__
    dispatcher.Job.__init__ = lambda self, id, **kwargs: job(self, id, **clean(kwargs))

    class Here(Worker):
        def compute(self, config: dict[str, Any], budget: float, **_: Any) -> dict[str, Any]:
            with contextlib.suppress(Spent):
                return {"loss": f(config, budget), "info": {}}
            return {"loss": 0.0, "info": {}}

    logging.disable(logging.CRITICAL)
    np.random.seed(seed)  # noqa: NPY002 # hpbandster knows no other generator
    space = f.space()
    space.seed(seed)
    names = nameserver.NameServer(run_id=f"{seed}", host="127.0.0.1", port=0)
    host, port = names.start()
    Here(run_id=f"{seed}", nameserver=host, nameserver_port=port).run(background=True)
    master = BOHB(
        configspace=space,
        run_id=f"{seed}",
        nameserver=host,
        nameserver_port=port,
        min_budget=1,
        max_budget=MOST,
        eta=ETA,
    )
    master.run(n_iterations=18)  # each four of them cost 15 full evaluations
    master.shutdown(shutdown_workers=True)
    names.shutdown()


CONTESTANTS: dict[str, Contestant] = {
    "ours bohb": ours("bohb"),
    "ours bohb aggressive": ours("bohb", bracket="aggressive"),
    "ours optuna": ours("optuna"),
    "ours random": ours("random"),
    "hpbandster": hpbandster_itself,
    "optuna": optuna_itself,
    "random": plain_random,
}
APART = ("hpbandster",)  # in processes of their own


def run(name: str, function: str, seed: int) -> dict[str, float]:
    f, started = FUNCTIONS[function](seed), time.process_time()
    with contextlib.suppress(Spent):
        CONTESTANTS[name](f, seed)
    return {"regret": f.best[1], "seconds": time.process_time() - started, "spent": f.spent}


def run_apart(name: str, function: str, seed: int) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, function, str(seed)]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    except subprocess.TimeoutExpired:
        return {"regret": math.nan, "seconds": LIMIT, "spent": 0.0}
    return json.loads(out.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="NAME")
    parser.add_argument("--functions", nargs="*", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--one", nargs=3, metavar=("NAME", "FUNCTION", "SEED"), help="one run, as JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run(args.one[0], args.one[1], int(args.one[2]))), flush=True)
        return
    figures: dict[str, Any] = {}
    for function in args.functions:
        print(f"{function + ', regret':24}{'mean':>8}{'s.e.':>8}{'median':>8}{'least':>8}{'most':>8}{'CPU s':>8}")
        for name in args.only:
            runs = [(run_apart if name in APART else run)(name, function, seed) for seed in range(args.seeds)]
            regret = [r["regret"] for r in runs if math.isfinite(r["regret"])] or [math.nan]
            figures[f"{function}.{name}"] = runs
            error = statistics.stdev(regret) / math.sqrt(len(regret)) if len(regret) > 1 else math.nan
            columns = [statistics.mean(regret), error, statistics.median(regret), min(regret), max(regret)]
            seconds = statistics.mean(r["seconds"] for r in runs)
            hung = sum(math.isnan(r["regret"]) for r in runs)
            lost = f"   {hung} without a result" if hung else ""
            print(f"{name:24}" + "".join(f"{x:8.3f}" for x in columns) + f"{seconds:8.1f}{lost}", flush=True)
        print()
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
