"""Command lines that are wrong, of every command, made of what its own parser declares.

A line is a base that would be taken (or is refused only for a file that it lacks), with one thing wrong: an unknown or
misspelt flag, a value missing, no number or out of all bounds, a choice, a file or a folder that is not there or not
what it should be, a key of --set, a word too many, flags that contradict each other.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import random
import types
import typing
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CARTPOLE = str(ROOT / "default_config_cartpole_syn_env.yaml")
BANDIT_RN = str(ROOT / "default_config_gridworld_reward_env.yaml")
PARAMS = str(ROOT / "experiments/params/reacher_params.py")
TASK = ["--task", "Cartpole"]
HUGE = "9" * 30

BASES: dict[str, list[str]] = {  # module -> words; {dir}: a folder of this line's own
    "GTN_master": [CARTPOLE, "--check"],
    "GTN_worker": ["0", "0", "--sync-dir", "{dir}/sync"],
    "envolve.experiments.auto_shape": [*TASK, "--llm", "replay:missing.jsonl"],
    "envolve.experiments.paper.compare_proxies": [CARTPOLE],
    "envolve.experiments.controls": ["garbage.pt"],
    "envolve.experiments.paper.correlation": [CARTPOLE],
    "envolve.experiments.describe_tasks": [],
    "envolve.experiments.eval_shapers": [*TASK, "--iterations", "1", "--run-dir", "{dir}/out"],
    "envolve.experiments.evaluate_policy": ["--run-dir", "folder"],
    "envolve.experiments.evaluate_proxy": ["garbage.pt"],
    "envolve.experiments.evolve": ["gymnasium:CartPole-v1", "--check", "--results-dir", "{dir}/results"],
    "envolve.experiments.evolve_goals": ["--results_dir", "{dir}/results"],
    "envolve.experiments.film_world": ["garbage.pt"],
    "envolve.experiments.paper.figures": ["--list"],
    "envolve.experiments.paper.generalization_gap": [CARTPOLE],
    "envolve.experiments.paper.gridworld": [],
    "envolve.experiments.paper.heatmap": [],
    "envolve.experiments.paper.histograms": [CARTPOLE],
    "envolve.experiments.paper.hyperparameter_sensitivity": [CARTPOLE],
    "envolve.experiments.paper.inference_time": [CARTPOLE],
    "envolve.experiments.paper.learned_reward": [],
    "envolve.experiments.paper.model_based_baseline": [CARTPOLE],
    "envolve.experiments.paper.noise_threshold": [CARTPOLE],
    "envolve.experiments.paper.run_queue": ["--list"],
    "envolve.experiments.optimize_params": [str(ROOT / "configs/spaces/cartpole_syn_env.yaml"), "--check"],
    "envolve.experiments.replay_dump": ["garbage.pt"],
    "envolve.experiments.serve_evaluator": ["--task", "Cartpole", "--port", "0"],
    "envolve.experiments.serve_small_model": [],
    "envolve.experiments.paper.step_size": [],
    "envolve.experiments.study_report": ["folder"],
    "envolve.experiments.train_distributed": ["--params", "garbage.pt", "--run-dir", "{dir}/run"],
    "envolve.experiments.train_goal": ["--task", "reacher", "--results_dir", "{dir}/results"],
    "envolve.experiments.paper.train_proxy": [CARTPOLE, "--results-dir", "{dir}/results"],
    "envolve.experiments.paper.transfer": [CARTPOLE],
    "envolve.experiments.paper.tuned_baseline": ["folder"],
    "envolve.experiments.paper.unseen_agents": [CARTPOLE],
    "envolve.experiments.vet_shaper": ["garbage.pt"],
    "envolve.experiments.worlds": ["show", "CartPole-v1-bandit"],
    "envolve.slurm.submit": ["--run-dir", "{dir}/run", "--once", "python3", "GTN_master.py", CARTPOLE],
    "envolve.slurm.single_node": ["--run-dir", "{dir}/run", "python3", "GTN_master.py", CARTPOLE],
    "benchmarks.run": ["--list"],
    "benchmarks.scaling": [],
    "benchmarks.distributed": [],
    "benchmarks.searches": ["--table", "--out", "{dir}/out"],
}
CHEAP = ("GTN_master", "GTN_worker", "envolve.experiments.train_goal", "envolve.slurm.submit")  # to import
RISKY = (
    "envolve.experiments.serve_small_model",
    "envolve.experiments.serve_evaluator",
    "benchmarks.scaling",
    "benchmarks.distributed",
)
TOGETHER: dict[str, list[list[str]]] = {  # what contradicts itself
    "GTN_master": [["--resume", "folder"], ["--workers", "0"], ["--resume", "folder", "--seed", "3"]],
    "envolve.experiments.train_goal": [
        ["--resume", "folder"],
        ["--resume", "none"],
        ["--agent", "sac", "--energy_fn", "l2"],
    ],
    "envolve.experiments.auto_shape": [["--resume", "missing"], ["--config", CARTPOLE, "--islands", "3"]],
    "envolve.experiments.train_distributed": [["--params", PARAMS, "--mode", "async"], ["--collectors", "0"]],
    "envolve.experiments.optimize_params": [["--resume", "folder"], ["--bohb-id", "3", "--bohb-workers", "2"]],
    "envolve.experiments.eval_shapers": [
        ["--shapers", "folder"],
        ["--schedule", "empty.yaml", "--candidates", "nobody"],
    ],
}
FILES = {  # laid out in the folder where the lines are run
    "empty.yaml": b"", "list.yaml": b"- 1\n- 2\n", "torn.yaml": b"agents: {gtn: [", "garbage.pt": bytes(range(256)) * 9,
    "text.txt": b"no configuration\n", "deep.yaml": b"{a: " * 2000,
}  # fmt: skip
KEYS = (
    "nonsense", "=", "agents.ddqn.lrr=1", "agents.gtn.max_iterations=abc", "a.b.c=1", "agents.gtn=3", "seed=-1",
    "agents.gtn.max_iterations=" + HUGE, "agents.gtn.noise_std=nan", "agents.ddqn.lr=.inf", "\x1b[2Jx=1", "lr=abc",
    "agents.gtn.agent_name=DDQM", "agents.ddqn.hidden_size=1000000000", "agents.gtn.max_iterations={", "..=1",
)  # fmt: skip


class Option(NamedTuple):
    flag: str
    kind: str  # int, float, choice, path, text, switch, keys


class Line(NamedTuple):
    module: str
    words: list[str]
    fault: str  # what is wrong with it
    about_file: bool  # exit code 1 is right, too


def kind_of(name: str, hint: Any) -> str:
    """Of a value, by the type that a command declares."""
    if typing.get_origin(hint) is typing.Annotated:
        return kind_of(name, typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return kind_of(name, next(t for t in typing.get_args(hint) if t is not type(None)))
    if typing.get_origin(hint) is typing.Literal:
        return "choice"
    plain = {int: "int", float: "float", bool: "switch", Path: "path"}
    return "keys" if name == "set" else plain.get(hint, "text")


def options_of(module: str) -> list[Option]:
    """The flags of a command, read from its parser or from the dataclass that tyro makes one of."""
    imported = importlib.import_module(module)
    if hasattr(imported, "build_parser"):
        found = []
        for action in imported.build_parser()._actions:
            flags = [flag for flag in action.option_strings if flag.startswith("--")]
            if not flags or action.dest in ("help", "parent_pid"):
                continue
            kind = "choice" if action.choices else {int: "int", float: "float", Path: "path"}.get(action.type, "text")
            if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
                kind = "switch"
            found.append(Option(flags[0], "keys" if action.dest == "overrides" else kind))
        return found
    args = getattr(imported, "Args", None) or getattr(imported, "CompareArgs", None)
    if args is None:
        return []
    hints = typing.get_type_hints(args, include_extras=True)
    separator = "_" if "_" in "".join(w for w in BASES[module] if w.startswith("--")) else "-"
    options = []
    for field in dataclasses.fields(args):
        if "Positional" in str(inspect.get_annotations(args).get(field.name, hints[field.name])):
            continue
        kind = kind_of(field.name, hints[field.name])
        options.append(Option("--" + field.name.replace("_", separator), kind))
    return options


def misspelt(flag: str, known: list[str], draw: random.Random) -> str:
    """A flag with a letter too many, too few or another; no abbreviation of any."""
    while True:
        i = draw.randrange(3, len(flag))
        letter = draw.choice("qxzj")
        found = draw.choice((flag[:i] + letter + flag[i:], flag[:i] + letter + flag[i + 1 :]))
        if not any(other.replace("_", "-").startswith(found.replace("_", "-")) for other in known):
            return found


def bad_values(kind: str) -> list[str]:
    if kind == "int":
        return ["abc", "1.5", "nan", "inf", "", "0x10", "-1", HUGE, "1e3000", "3 4", "١٢x"]
    return {"float": ["abc", "nan", "inf", "-inf", "", "1,5"], "choice": ["wrong", "", "CHOICE"]}.get(kind, [])


def make_line(module: str, options: list[Option], draw: random.Random) -> Line:
    """One wrong line of a command."""
    base, known = list(BASES[module]), [o.flag for o in options]
    risky = module in RISKY
    valued = [o for o in options if o.kind != "switch"]
    kinds = ["unknown", "misspelt", "missing", "value", "value", "value", "too many"]
    if not risky:
        kinds += ["keys", "file", "file", "together"]
    while True:
        kind = draw.choice(kinds)
        if kind == "unknown":
            return Line(module, [*base, "--frobnicate", "3"], kind, False)
        if kind == "misspelt" and options:
            return Line(module, [*base, misspelt(draw.choice(known), known, draw), "3"], kind, False)
        if kind == "missing" and valued:
            one = [o for o in valued if o.kind in ("int", "float", "choice")]  # others may take none
            if one:
                return Line(module, [*base, draw.choice(one).flag], kind, False)
        if kind == "value":
            countable = [o for o in options if bad_values(o.kind)]
            if countable:
                option = draw.choice(countable)
                values = bad_values(option.kind)[: 3 if risky else None]
                return Line(module, [*base, f"{option.flag}={draw.choice(values)}"], f"{kind} of {option.flag}", False)
        if kind == "too many" and module not in (
            "envolve.experiments.paper.figures",
            "envolve.slurm.submit",
            "envolve.slurm.single_node",
        ):
            flags = [w for w in base if w.startswith("--")]
            if not flags or module.startswith("GTN"):
                return Line(module, [*base, "surplus", "words", "here"], kind, True)
        if kind == "keys" and any(o.kind == "keys" for o in options):
            return Line(module, [*base, "--set", draw.choice(KEYS)], kind, False)
        if kind == "file":
            paths = [i for i, w in enumerate(base) if w == CARTPOLE or w in ("garbage.pt", "folder")]
            if paths and module != "envolve.experiments.study_report":
                words = list(base)
                wrong = [*FILES, "missing.yaml", "folder", "missing/x", "/dev/null", ""]
                words[draw.choice(paths)] = draw.choice(wrong)
                return Line(module, words, kind, True)
        if kind == "together" and module in TOGETHER:
            return Line(module, [*base, *draw.choice(TOGETHER[module])], kind, True)


def lines(modules: list[str], seed: int, count: int) -> list[Line]:
    """``count`` wrong lines, of every command as many, the same for the same seed."""
    draw = random.Random(seed)
    options = {module: options_of(module) for module in modules}
    return [make_line(modules[i % len(modules)], options[modules[i % len(modules)]], draw) for i in range(count)]
