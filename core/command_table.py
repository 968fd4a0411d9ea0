"""The table of commands: what one can ask of Envolve, by which module each is done, and older names of its flags.

``core/commands.py`` reads it. Standard library only, and imports nothing of this project. Python 3.8.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple


class Command(NamedTuple):
    """One line of the table."""

    name: str  # as typed: "run", "paper transfer"
    module: str  # below envolve
    script: str  # its old door, which messages begin with when it was started through that
    about: str
    old: Dict[str, str] = {}  # flags: old name -> new name
    hidden: Tuple[str, ...] = ()  # flags that only other programs use
    kept: Dict[str, str] = {}  # flags that still do what they did, and what is said of them
    no_value: str = ""  # where a film goes if --video stands alone, as it once could

    @property
    def words(self) -> List[str]:
        """How the old door is typed."""
        folder = [] if self.script.startswith("GTN_") else self.module.split(".")[:-1]
        return ["python3", "/".join([*folder, self.script])]


_WORKERS = {"--num-workers": "--workers"}
_DATA = {"--out": "--json"}
_NAME = {"--exp-name": "--run-dir, the whole path"}


def _paper(name: str, about: str, old: Optional[Dict[str, str]] = None, module: str = "") -> Command:
    module = module or name.replace("-", "_")
    return Command(f"paper {name}", f"experiments.paper.{module}", f"{module}.py", about, _DATA if old is None else old)


GROUPS: Dict[str, Tuple[Command, ...]] = {
    "Evolve worlds": (
        Command("evolve", "experiments.evolve", "evolve.py", "evolve a world for any Gymnasium environment, no YAML"),
        Command(
            "run", "experiments.run", "GTN_master.py", "evolve a synthetic environment or a reward network", _WORKERS
        ),
        Command(
            "worker", "experiments.worker", "GTN_worker.py", "train agents for a run, on this or another machine",
            hidden=("--parent-pid",),
        ),
        Command(
            "tune", "experiments.optimize_params", "optimize_params.py",
            "search hyperparameters: BOHB over NES", _WORKERS, ("--nes-master", "--no-nes-master", "--parent-pid"),
        ),
        Command("worlds", "experiments.worlds", "worlds.py", "the zoo: worlds to train in, with what agents reach"),
        Command(
            "controls", "experiments.controls", "controls.py", "compare an evolved world with what could explain it"
        ),
    ),
    "Evolve shapers": (
        Command(
            "shape", "experiments.eval_shapers", "eval_shapers.py", "rank files of rewards, observations, ...",
            {"--out": "--run-dir", "--learning-iterations": "--iterations"}, no_value="best.mp4 among the results",
        ),
        Command(
            "write", "experiments.auto_shape", "auto_shape.py", "let language models write rewards, and evolve them",
            {"--learning-iterations": "--iterations"}, no_value="best.mp4 in the run's folder",
        ),
        Command("vet", "experiments.vet_shaper", "vet_shaper.py", "would this file of a model be accepted?"),
        Command(
            "serve", "experiments.serve_evaluator", "serve_evaluator.py",
            "score shapers that other programs send over HTTP",
        ),
        Command(
            "small-model", "experiments.serve_small_model", "serve_small_model.py",
            "serve a small language model on the CPU, to try `write` with",
        ),
        Command("tasks", "experiments.describe_tasks", "describe_tasks.py", "what shapers can read, of every task"),
    ),
    "Train": (
        Command(
            "goal", "experiments.train_goal", "train_goal.py", "train agents that reach goals, without rewards",
            {
                "--env-name": "--task", "--env": "--task", "--total-env-steps": "--num-timesteps",
                "--logsumexp-penalty-coeff": "--logsumexp-penalty",
            },
            kept=_NAME, no_value="video.mp4 in the run's folder",
        ),
        Command(
            "evolve-goals", "experiments.evolve_goals", "evolve_goals.py", "evolve starts and goals to train with",
            {
                "--env-name": "--task", "--env": "--task", "--total-env-steps": "--num-timesteps",
                "--logsumexp-penalty-coeff": "--logsumexp-penalty",
            },
            kept=_NAME,
        ),
        Command(
            "distributed", "experiments.train_distributed", "train_distributed.py",
            "train in your own Gymnasium environment, with many collectors",
            {"--exp-dir": "--run-dir", "--num-collectors": "--collectors"},
        ),
    ),
    "Look at results": (
        Command(
            "evaluate", "experiments.evaluate_policy", "evaluate_policy.py", "play episodes with the policy of a run",
            {"--exp-dir": "--run-dir", "--num-episodes": "--episodes"},
        ),
        Command(
            "evaluate-world", "experiments.evaluate_proxy", "evaluate_proxy.py",
            "train fresh agents in a model.pt, and on the task beside them", {"--num-agents": "--agents"},
        ),
        Command("film", "experiments.film_world", "film_world.py", "film agents in a model.pt, and on the task beside"),
        Command(
            "replay", "experiments.replay_dump", "replay_dump.py", "show the last states of a simulation that diverged"
        ),
        Command("report", "experiments.study_report", "study_report.py", "look at a run, or at several"),
    ),
    "Clusters": (
        Command(
            "submit", "slurm.submit", "submit.py", "run masters and workers under SLURM, and keep them running",
            {"--workers-per-master": "--workers"},
        ),
        Command(
            "single-node", "slurm.single_node", "single_node.py", "masters and workers on one machine, CPUs dealt out",
            {"--workers-per-master": "--workers"},
        ),
    ),
    "The paper's experiments": (
        _paper("train-proxy", "evolve many worlds of one kind", old=_WORKERS),
        _paper("compare-proxies", "fresh agents in the best worlds, and on the task"),
        _paper("generalization-gap", "the same with SEs, and fixed hyperparameters"),
        _paper("transfer", "other agents, or other hyperparameters, in the best worlds"),
        _paper("unseen-agents", "agents that no world was evolved with"),
        _paper("hyperparameter-sensitivity", "one hyperparameter changed at a time"),
        _paper("model-based-baseline", "the same networks, fitted to the task instead"),
        _paper("tuned-baseline", "agents tuned on the task itself", old={}),
        _paper("correlation", "are sets of hyperparameters ranked alike in the SE and on the task?"),
        _paper("histograms", "the steps of an SE beside those of the task"),
        _paper("heatmap", "which states agents visit, by the RN they trained with"),
        _paper("learned-reward", "the reward of every state and action, read from RNs"),
        _paper("noise-threshold", "how much noise an SE stands"),
        _paper("gridworld", "the SE of a small room, state by state"),
        _paper("step-size", "which step size and score transform are best", old=_WORKERS),
        _paper("inference-time", "milliseconds per step, in the task and in worlds"),
        _paper("figures", "draw the figures", old={}),
        _paper("queue", "compute these one after the other, and go on after any stop", old={}, module="run_queue"),
    ),
}  # fmt: skip
COMMANDS = {command.name: command for commands in GROUPS.values() for command in commands}
PAPER = "paper"
