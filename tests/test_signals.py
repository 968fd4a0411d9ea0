"""Ctrl-C and SIGTERM at every command, in every phase: it ends soon, says one line, leaves nobody behind, and what the
line promises works. Every stop is printed as a line of a table: command, moment, signal, exit code, seconds, load per
core, what it said (-s shows it)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.core.test_interrupt import commands, name
from tests.experiments.test_eval_shapers import GOOD as SHAPER
from tests.experiments.test_eval_shapers import SMALL as SHAPERS
from tests.experiments.test_evolve_goals import TINY as EVOLVE_GOALS
from tests.experiments.test_train_distributed import PARAMS
from tests.experiments.test_train_goal import TINY as TRAIN_GOAL
from tests.llm.gym.user import GOOD as REWARD
from tests.llm.gym.user import write_config, write_user_env
from tests.outer.hpo.small import write as write_study
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, CLIFF, GRIDWORLD_FILE, ROOT
from tests.stopped import CTRL_C, INT, TERM, Command, End, check, cpu_of, script

pytestmark = pytest.mark.slow
RECORDING = ROOT / "experiments" / "recordings" / "cartpole.jsonl"
MASTER = ["--workers", "2", "--set", *CLIFF, "agents.gtn.max_iterations=20"]
SES = ["--workers", "2", "--set", *CARTPOLE]
TRAIN_DISTRIBUTED = ["--params", "p.py", "--config", "c.json", "--run-dir", "run", "--quick"]


@dataclass(frozen=True)
class Case:
    """A short real run. prepare(folder): what it needs; moments: texts of its output, or parts of its CPU time."""

    words: list[str]
    moments: tuple[str | float, ...] = (0.6, 0.8)
    prepare: Callable[[Path], object] = lambda folder: None
    goes_on: bool = True  # the line names a command, or the same one goes on
    ends: bool = True  # by itself; if not, its first moment is a text
    prog: str = ""

    @property
    def name(self) -> str:
        return self.prog or self.words[0].removeprefix("experiments/").removeprefix("paper/").removeprefix("slurm/")

    def start(self, folder: Path, **environ: str) -> Command:
        return Command([script(self.words[0]), *self.words[1:]], folder, environ)


def shapers(folder: Path) -> None:
    (folder / "shapers").mkdir()
    (folder / "shapers" / "good.py").write_text(SHAPER)


def distributed(folder: Path) -> None:
    (folder / "p.py").write_text(PARAMS)
    (folder / "c.json").write_text(json.dumps({"length": 30}))


def gym(folder: Path) -> None:
    write_user_env(folder)
    write_config(folder, [REWARD, REWARD], 2)


def reply(folder: Path) -> None:
    (folder / "reply.txt").write_text(f"```python\n{SHAPER}```")


CASES = {
    "master": Case(["GTN_master.py", str(GRIDWORLD_FILE), *MASTER], ("is there", "generation 11/", "Written to")),
    "master SE": Case(["GTN_master.py", str(CARTPOLE_FILE), *SES], ("workers are starting", 0.7, "generation 1/")),
    "worker": Case(["GTN_worker.py", "0", "0"], ("waits for a master", 0.5), goes_on=False, ends=False),
    "train_proxy": Case(
        [
            "experiments/paper/train_proxy.py",
            str(GRIDWORLD_FILE),
            "--runs",
            "2",
            *MASTER[:2],
            *MASTER[2:-1],
            "agents.gtn.max_iterations=8",
            "agents.gtn.comparison_agents=0",
        ],
        (0.6, 0.8),
    ),
    "compare_proxies": Case(
        ["experiments/paper/compare_proxies.py", str(GRIDWORLD_FILE), "--quick", "--set", *CLIFF], (0.6, 0.8)
    ),
    "train_goal": Case(["experiments/train_goal.py", *TRAIN_GOAL, "--exp_name", "run"]),
    "evolve_goals": Case(["experiments/evolve_goals.py", *EVOLVE_GOALS, "--exp_name", "run"]),
    "eval_shapers": Case(
        ["experiments/eval_shapers.py", *SHAPERS, "--iterations", "300", "--shapers", "shapers", "--run-dir", "out"],
        prepare=shapers,
        goes_on=False,
    ),
    "auto_shape": Case(
        [
            "experiments/auto_shape.py",
            *SHAPERS,
            "--retest",
            "2",
            "--num_iters",
            "2",
            "--shapers_per_iter",
            "4",
            "--llm",
            f"replay:{RECORDING}",
        ],
        (0.5, 0.7, 0.8),
    ),
    "auto_shape --config": Case(
        ["experiments/auto_shape.py", "--config", "walk.yml", "--processes", "2", "--hours", "0.1"],
        ("observation", 0.9),
        prepare=gym,
    ),
    "vet_shaper": Case(
        ["experiments/vet_shaper.py", "reply.txt", "--task", "Cartpole", "--shaper_types", "compute_reward"],
        prepare=reply,
        goes_on=False,
    ),
    "optimize_params": Case(
        ["experiments/optimize_params.py", "cliff.yaml", "--workers", "1", "--run-dir", "run"],
        ("is there", 0.8),
        prepare=write_study,
    ),
    "train_distributed": Case(["experiments/train_distributed.py", *TRAIN_DISTRIBUTED], prepare=distributed),
    "train_distributed --processes": Case(
        ["experiments/train_distributed.py", *TRAIN_DISTRIBUTED, "--processes"],
        ("iteration 0/", "evaluation at 0"),  # its own CPU time is nearly all imports
        prepare=distributed,
    ),
    "figures": Case(["experiments/paper/figures.py", "score_transforms"]),
    "figures --quick": Case(
        ["experiments/paper/figures.py", "inference_time", "--quick"], ("inference_time.py", 0.99), prog="figures.py"
    ),
    "inference_time": Case(["experiments/paper/inference_time.py", str(CARTPOLE_FILE)]),
    "benchmarks": Case(
        ["benchmarks/run.py", "--only", "tabular_q", "--json", "out.json"], ("--- ",), goes_on=False, ends=False
    ),
}


def stopped(case: str, command: Command, moment: str, how: str, prog: str, over: tuple[int, ...] = (0,)) -> End:
    """over: exit codes of a command that had ended by itself."""
    end = command.stop(how)
    said = end.said[-1] if end.said else ""
    print(f"\n{case:30} {moment:22} {how:8} {end.code:4} {end.seconds:6.1f} {end.load:5.1f}  {said}", flush=True)
    if end.code not in over:  # else the interpreter was being taken down
        check(end, how, prog)
    assert "Traceback" not in end.before + end.after
    return end


# ------------------------------------------------------------------------------------------------------- all: importing


@pytest.mark.parametrize("how", [INT, TERM])
@pytest.mark.parametrize("path", [p for p in commands() if p.name != "__main__.py"], ids=name)  # which is too quick
def test_importing(path: Path, how: str, tmp_path: Path) -> None:
    """As soon as it hears, and somewhat later; the slowest import of a command takes seconds."""
    words = ["-m", "envolve.distributed.programs.role"] if path.parent.name == "distributed" else [str(path)]
    prog = {
        "distributed/programs/role.py": "envolve.distributed.programs.role",
        "benchmarks/run.py": "benchmarks/run.py",
        "experiments/run.py": "GTN_master.py",
        "experiments/worker.py": "GTN_worker.py",
    }.get(name(path), path.name)
    for seconds in (0.0, 0.3):
        command = Command([*words, "no_such_file"], tmp_path, {"PYTHONPATH": str(ROOT)})  # refused, but not at once
        try:
            if not command.wait_until(command.hears):
                pytest.fail(f"it never heard: {command.text()}")
            began = command.cpu()
            if command.wait_until(lambda: command.cpu() >= began + seconds):  # noqa: B023
                if command.running:  # it may have been refused already
                    stopped(name(path), command, f"importing + {seconds:g} s", how, prog, (0, 1, 2))
        finally:
            command.kill()


# ------------------------------------------------------------------------------------------------------- phases of runs


@pytest.fixture(scope="module")
def cpu_seconds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], float]:
    """Of the main process of a whole run, which ends well, or until the first moment of one that does not end."""
    known: dict[str, float] = {}

    def whole(case: str) -> float:
        if case not in known:
            folder = tmp_path_factory.mktemp("whole")
            CASES[case].prepare(folder)
            command, seen = CASES[case].start(folder), [0.0]
            if CASES[case].ends:
                command.wait_until(lambda: seen.append(command.cpu()))
                assert command.process.returncode == 0, command.text()
            else:
                assert command.wait_until(lambda: str(CASES[case].moments[0]) in command.text()), command.text()
                seen.append(command.cpu())
                command.kill()
            known[case] = max(seen)
        return known[case]

    return whole


def steps() -> list[tuple[str, int]]:
    return [(case, i) for case in CASES for i in range(len(CASES[case].moments))]


@pytest.mark.parametrize("case,i", steps(), ids=lambda x: str(x).replace(" ", "_"))
def test_phases(case: str, i: int, tmp_path: Path, cpu_seconds: Callable[[str], float]) -> None:
    chosen, how = CASES[case], (CTRL_C, TERM)[i % 2]
    moment = chosen.moments[i]
    at = 0.0 if isinstance(moment, str) else moment * cpu_seconds(case)
    chosen.prepare(tmp_path)
    command = chosen.start(tmp_path)
    try:
        if isinstance(moment, str):
            reached = command.wait_until(lambda: moment in command.text())
        else:
            reached = command.wait_until(lambda: command.cpu() >= at)
        if not reached:
            pytest.skip("it had ended before")
        end = stopped(case, command, str(moment), how, chosen.name)
        if end.code == 0:
            return
    finally:
        command.kill()
    if chosen.goes_on and chosen.ends:
        assert any(word in end.said[0] for word in ("nothing", "go", "complete", "continue with")), end.said
        again(chosen, end, tmp_path)


def again(case: Case, end: End, folder: Path) -> None:
    """What the line promises."""
    words = end.resume
    if "complete" in end.said[0].split("stopped; ")[1]:
        return
    if words:
        assert words[0] == "python3"
        command = Command([script(words[1]), *words[2:]], folder)
    else:
        assert "the same command" in end.said[0]
        command = case.start(folder)
    try:
        command.wait_until(lambda: False)
        assert command.process.returncode == 0, command.text()
    finally:
        command.kill()


# ------------------------------------------------------------------------------------------------------------ compiling

COMPILING = ["master SE", "train_goal", "eval_shapers"]


@pytest.mark.parametrize("how", [CTRL_C, TERM])
@pytest.mark.parametrize("case", COMPILING)
def test_compiling(case: str, how: str, tmp_path: Path) -> None:
    """With no compiled kernel on this machine; when a process has worked for four seconds: imports are over."""
    chosen = CASES[case]
    chosen.prepare(tmp_path)
    command = chosen.start(tmp_path, ENVOLVE_CACHE=str(tmp_path / "cache"))
    try:
        assert command.wait_until(command.compiles), command.text()
        assert command.wait_until(lambda: max(map(cpu_of, command.descendants()), default=0) > 4.0)
        stopped(case, command, "compiling", how, chosen.name)
    finally:
        command.kill()
