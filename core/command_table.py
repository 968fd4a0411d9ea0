"""The table of commands: what one can ask of Envolve, by which module each is done, and older names of its flags.

``core/commands.py`` reads it. Standard library only, and imports nothing of this project. Python 3.8.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple


class Command(NamedTuple):
    """One line of the table."""

    name: str  # as typed: "run", "paper transfer"
    module: str  # below envolve
    script: str  # file name of its former script; messages begin with it if the command was started so
    about: str
    old: Dict[str, str] = {}  # flags: old name -> new name
    hidden: Tuple[str, ...] = ()  # flags that only other programs use
    kept: Dict[str, str] = {}  # deprecated flags that still work -> what is said of them
    no_value: str = ""  # where a film goes if --video stands alone, as it once could
    all_at_once: bool = False  # it names all of its wrong values itself, in one message

    @property
    def words(self) -> List[str]:
        """How the former script is typed."""
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
        Command("worlds", "experiments.worlds", "worlds.py", "list, test, extend the zoo of worlds; check learners"),
        Command(
            "controls", "experiments.controls", "controls.py", "compare an evolved world with simple controls"
        ),
    ),
    "Evolve shapers": (
        Command(
            "shape", "experiments.eval_shapers", "eval_shapers.py", "rank shaper files: rewards, observations, ...",
            {"--out": "--run-dir", "--learning-iterations": "--iterations"}, no_value="best.mp4 among the results",
        ),
        Command(
            "write", "experiments.auto_shape", "auto_shape.py", "let language models write rewards, and evolve them",
            {"--learning-iterations": "--iterations"}, no_value="best.mp4 in the run's folder",
        ),
        Command("vet", "experiments.vet_shaper", "vet_shaper.py", "check whether a shaper file would be accepted"),
        Command(
            "serve", "experiments.serve_evaluator", "serve_evaluator.py",
            "score shapers that other programs send over HTTP",
        ),
        Command(
            "small-model", "experiments.serve_small_model", "serve_small_model.py",
            "serve a small language model on the CPU, to try envolve write",
        ),
        Command("tasks", "experiments.describe_tasks", "describe_tasks.py", "print what shapers can read in each task"),
    ),
    "Train": (
        Command(
            "goal", "experiments.train_goal", "train_goal.py", "train goal-conditioned agents, e.g. by contrastive RL",
            {
                "--env-name": "--task", "--env": "--task", "--total-env-steps": "--num-timesteps",
                "--logsumexp-penalty-coeff": "--logsumexp-penalty",
            },
            kept=_NAME, no_value="video.mp4 in the run's folder", all_at_once=True,
        ),
        Command(
            "evolve-goals", "experiments.evolve_goals", "evolve_goals.py", "evolve starts and goals to train with",
            {
                "--env-name": "--task", "--env": "--task", "--total-env-steps": "--num-timesteps",
                "--logsumexp-penalty-coeff": "--logsumexp-penalty",
            },
            kept=_NAME, all_at_once=True,
        ),
        Command(
            "distributed", "experiments.train_distributed", "train_distributed.py",
            "train in your own Gymnasium environment, with many collectors",
            {"--exp-dir": "--run-dir", "--num-collectors": "--collectors"},
        ),
    ),
    "Look at results": (
        Command(
            "evaluate", "experiments.evaluate_policy", "evaluate_policy.py", "run episodes with the policy of a run",
            {"--exp-dir": "--run-dir", "--num-episodes": "--episodes"},
        ),
        Command(
            "evaluate-world", "experiments.evaluate_proxy", "evaluate_proxy.py",
            "train fresh agents in a model.pt and on the task", {"--num-agents": "--agents"},
        ),
        Command("film", "experiments.film_world", "film_world.py", "film agents in a model.pt and on the task"),
        Command(
            "replay", "experiments.replay_dump", "replay_dump.py", "show the last states of a simulation that diverged"
        ),
        Command("report", "experiments.study_report", "study_report.py", "show runs as an HTML page"),
    ),
    "Clusters": (
        Command(
            "submit", "slurm.submit", "submit.py", "run masters and workers on a SLURM cluster",
            {"--workers-per-master": "--workers"},
        ),
        Command(
            "single-node", "slurm.single_node", "single_node.py", "run masters and workers on the CPUs of one machine",
            {"--workers-per-master": "--workers"},
        ),
    ),
    "The paper's experiments": (
        _paper("train-proxy", "evolve many worlds of one kind", old=_WORKERS),
        _paper("compare-proxies", "train fresh agents in the best worlds and on the task"),
        _paper("generalization-gap", "the same in SEs, with fixed hyperparameters"),
        _paper("transfer", "train other learners, or with other hyperparameters, in the best worlds"),
        _paper("unseen-agents", "train kinds of agents that the worlds were not evolved with"),
        _paper("hyperparameter-sensitivity", "train agents with one hyperparameter changed at a time"),
        _paper("model-based-baseline", "train agents in the same networks, fitted to the task"),
        _paper("tuned-baseline", "train agents with hyperparameters tuned on the task itself", old={}),
        _paper("correlation", "correlate how well hyperparameters work in an SE and on the task"),
        _paper("histograms", "compare the steps in an SE and on the task"),
        _paper("heatmap", "count which states agents visit after training in RNs"),
        _paper("learned-reward", "read the reward of every state and action from RNs"),
        _paper("noise-threshold", "train agents in an SE with noise on its outputs"),
        _paper("gridworld", "tabulate the SE of a small room, state by state"),
        _paper("step-size", "compare step sizes and score transforms", old=_WORKERS),
        _paper("inference-time", "measure milliseconds per step of the task and of worlds"),
        _paper("figures", "draw the figures", old={}),
        _paper("queue", "run these experiments one after the other", old={}, module="run_queue"),
    ),
}  # fmt: skip
COMMANDS = {command.name: command for commands in GROUPS.values() for command in commands}
PAPER = "paper"
