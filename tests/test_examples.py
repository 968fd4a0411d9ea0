"""examples/: each is run at a small size, in one process, by hand-started workers and by ``--single``; a user's search
goes on after a kill to the same bytes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

import envolve
import envolve.outer.run
from envolve.core import plugins
from envolve.core.plugins import PluginError
from envolve.envs.task import make_task
from envolve.envs.worlds.file import WorldFileError, read_world
from envolve.outer.config.load import ConfigError, TaskChoice, config_of, load_config, store_config
from envolve.outer.evaluate.networks import REAL_BUDGET, evaluate
from envolve.outer.exchange.messages import Chunk, ChunkResult
from envolve.outer.run import Run
from tests.outer.small import CLIFF, GRIDWORLD_FILE, default_sigint
from tests.outer.test_run import Direct, files, go

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TINY = (
    "agents.gtn.max_iterations=3", "agents.gtn.num_workers=3", "agents.gtn.num_orig_evals=2", "agents.gtn.chunk_size=3",
    "agents.gtn.comparison_agents=2", "agents.gtn.confirm_agents=0", "agents.expectedsarsa.train_steps=60",
    "agents.expectedsarsa.early_out_min_steps=60", "agents.expectedsarsa.init_episodes=0",
    "agents.expectedsarsa.train_episodes=20", "agents.expectedsarsa.test_episodes=2",
    "agents.expectedsarsa.hidden_size=8", "agents.expectedsarsa.batch_size=8", "envs.PointMass.hidden_size=8",
    "envs.PointMass.max_steps=20", "agents.gtn.quit_when_solved=false",
)  # fmt: skip
SEARCH = (*CLIFF, f"agents.gtn.search={EXAMPLES / 'my_search.py'}:MyES")


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    monkeypatch.setattr(envolve.outer.run, "learning_curve", lambda path, *a, **k: Path(path).write_text("picture"))


def own(*overrides: str):
    return load_config(EXAMPLES / "my_own.yaml", [*TINY, *overrides])


def test_three_files_of_one_configuration_are_known_by_name_and_checksum() -> None:
    data = own().data
    assert data["env_name"] == "PointMass" and data["agents"]["gtn"]["search"] == "MyES"
    assert data["agents"]["gtn"]["agent_name"] == "expectedsarsa"
    assert {file: set(entry) for file, entry in data["plugins"].items()} == {
        "my_task.py": {"sha256", "task"},
        "my_learner.py": {"sha256", "learner"},
        "my_search.py": {"sha256", "search"},
    }
    assert data["envs"]["PointMass"]["max_steps"] == 20 and data["agents"]["expectedsarsa"]["target_eps"] == 0.05


def test_task_learner_and_search_of_ones_own_run_and_the_folder_goes_on_alone(tmp_path: Path) -> None:
    config = own()
    text, summary = go(config, tmp_path / "whole")
    assert summary.generations == 3 and len(summary.proxy.returns) == 2
    folder = tmp_path / "stopped"
    folder.mkdir()
    store_config(folder, config)
    with pytest.raises(KeyboardInterrupt):
        go(config, folder, dispatcher=Direct(stop_at=2))
    stored = load_config(folder / "config.yaml")  # its files are beside it
    assert stored.data == config.data
    go(stored, folder, resume=True)
    assert files(folder) == files(tmp_path / "whole")


SMALL = (
    "agents.gtn.max_iterations=1", "agents.gtn.num_workers=2", "agents.gtn.num_orig_evals=2",
    "agents.gtn.backend=torch", "agents.gtn.comparison_agents=2", "agents.gtn.confirm_agents=0",
    "agents.ddqn.train_episodes=6", "agents.ddqn.train_steps=40", "agents.ddqn.test_episodes=1",
    "agents.ddqn.hidden_size=8", "agents.ddqn.batch_size=8",
)  # fmt: skip


@pytest.mark.parametrize("name, needs", [("frozen_lake_rn", "gymnasium"), ("lunar_lander", "Box2D")])
def test_worlds_for_environments_of_others(tmp_path: Path, name: str, needs: str) -> None:
    pytest.importorskip(needs)
    summary = go(load_config(EXAMPLES / f"{name}.yaml", SMALL), tmp_path / "run")[1]
    assert summary.generations == 1 and len(summary.proxy.returns) == 2 and summary.real_steps > 0


@pytest.mark.parametrize("stop_at", [0, 1, 4])
def test_own_search_goes_on_to_the_same_bytes(tmp_path: Path, stop_at: int) -> None:
    config = load_config(GRIDWORLD_FILE, SEARCH)
    go(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(config, tmp_path / "stopped", dispatcher=Direct(stop_at=stop_at))
    go(config, tmp_path / "stopped", resume=True)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_random_search_goes_on_too_and_keeps_its_best(tmp_path: Path) -> None:
    config = load_config(GRIDWORLD_FILE, [*CLIFF, "agents.gtn.search=random"])
    go(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(config, tmp_path / "stopped", dispatcher=Direct(stop_at=3))
    go(config, tmp_path / "stopped", resume=True)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def master(*arguments: object, **options) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "GTN_master.py"), *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=default_sigint
    )


def only(folder: Path) -> Path:
    (run,) = [p for p in folder.iterdir() if (p / "config.yaml").exists()]
    return run


@pytest.mark.slow
def test_single_takes_the_files_to_its_workers_and_survives_a_kill(tmp_path: Path) -> None:
    """GTN_master.py --single, killed after its first generation; the user's files are gone by then."""
    source = tmp_path / "mine"
    shutil.copytree(EXAMPLES, source)
    process = master(source / "my_own.yaml", "--num-workers", 1, "--results-dir", tmp_path / "runs", "--set", *TINY)
    try:
        deadline = time.monotonic() + 240
        while not list(tmp_path.glob("runs/*/checkpoint.pt")):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    shutil.rmtree(source)
    run = only(tmp_path / "runs")
    result = envolve.evolve(resume=run, workers=1, progress=False)
    assert result.generations == 3 and len(result.scores) == 3 and len(result.world_returns) == 2
    go(own(), tmp_path / "direct")
    assert (run / "scores.csv").read_bytes() == (tmp_path / "direct" / "scores.csv").read_bytes()
    # the world executes nothing; the folder that the user trusts does
    assert envolve.load_world(result.world, code_from=run).observation_space.shape == (2,)


@pytest.mark.parametrize("allowed", [pytest.param(True, marks=pytest.mark.slow), False])
def test_worker_by_hand_executes_only_what_it_was_allowed(tmp_path: Path, allowed: bool) -> None:
    runs, sync = tmp_path / "runs", tmp_path / "sync"
    (tmp_path / "sync").mkdir()
    flag = ["--plugins", str(runs)] if allowed else []
    worker = subprocess.Popen(
        [sys.executable, str(ROOT / "GTN_worker.py"), "0", "0", "--sync-dir", str(sync), *flag], cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    tiny = [*TINY, "agents.gtn.max_iterations=1", "agents.gtn.comparison_agents=0"]
    process = master(
        EXAMPLES / "my_own.yaml", "--sync-dir", sync, "--results-dir", runs, "--quit-workers", "--set", *tiny
    )
    try:
        output, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        worker.kill()
        worker.wait()
    if allowed:
        assert process.returncode == 0, output
    else:
        assert process.returncode == 1 and "refused: plugins: my_" in output and "--plugins DIR" in output, output


@pytest.mark.slow
def test_script_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "evolve_in_a_script.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout and "after 3 generations" in done.stdout and "one step in it" in done.stdout


# ------------------------------------------------------------------------------------------------ what goes wrong


def wrong(tmp_path: Path, text: str, key: str = "search", cls: str = "Mine", file: str = "mine.py") -> str:
    (tmp_path / "mine.py").write_text(text)
    reference = f"{tmp_path / file}:{cls}"
    base = yaml.safe_load((EXAMPLES / "my_own.yaml").read_text())
    base["env_name"] = reference if key == "task" else "CartPole-v0"
    base["agents"]["gtn"].update(search="nes", agent_name="DDQN")
    base["agents"].pop("expectedsarsa")
    base["envs"] = {cls if key == "task" else "CartPole-v0": {}}
    if key != "task":
        base["agents"]["gtn"]["search" if key == "search" else "agent_name"] = reference
    with pytest.raises(ConfigError) as caught:
        config_of(base)
    return caught.value.problems[0]


HEAD = "import torch, envolve\n"
SEARCH_OF = HEAD + "class Mine(envolve.Search):\n    def tell(self, scores): pass\n    def state(self): return {}\n"
TASK_OF = (
    HEAD + "class Mine(envolve.Task):\n    observation_size, num_actions, default_max_steps = 2, 2, 5\n"
    "    def reset(self, u): return torch.zeros(*u.shape[:2], 2)\n    def observe(self, state): return state\n"
)


@pytest.mark.parametrize(
    "key, text, options, words",
    [
        ("search", SEARCH_OF, {"file": "mime.py"}, "found no readable file (No such file or directory)"),
        ("search", SEARCH_OF, {"file": "mime.py"}, "did you mean"),
        ("search", SEARCH_OF, {"cls": "Mime"}, "found no class Mime, did you mean Mine"),
        ("search", SEARCH_OF, {}, "class Mine: found no ask, which every Search defines"),
        ("search", HEAD + "class Mine: pass\n", {}, "found no subclass of envolve.outer.search.search.Search"),
        ("search", HEAD + "1 / 0\n", {}, "mine.py:2: ZeroDivisionError: division by zero"),
        ("search", "def f(:\n", {}, "mine.py:1: SyntaxError"),
        ("task", TASK_OF, {}, "class Mine: found no step, which every Task defines"),
        (
            "task", TASK_OF + "    def step(self, state, action): return state, state[..., 0], state[..., 0]\n", {},
            "step: terminated: found float32 [2, 3], expected bool [2, 3]",
        ),
        ("task", TASK_OF + "    def step(self, s, a): return s.nope\n", {}, "mine.py:6: step raised AttributeError"),
        ("learner", HEAD + "class Mine(envolve.Algorithm): 0\n", {}, "found no nets_of, which every Algorithm defines"),
    ],
)  # fmt: skip
def test_wrong_file_is_one_line(tmp_path: Path, key: str, text: str, options: dict, words: str) -> None:
    found = wrong(tmp_path, text, key, **options)
    assert words in found and "\n" not in found, found


BODY = (
    SEARCH_OF + "    def restore(self, state): pass\n    def ask(self):\n        worlds = self.centre + self.noise(4)\n"
)


@pytest.mark.parametrize(
    "last, words",
    [
        ("return worlds * float('nan')", "ask(): 4 of 4 worlds are not finite (generation 1)"),
        ("return worlds[:, 1:]", "has the shape [4, "),
        ("return list(worlds)", "ask() is list, expected a tensor [P, "),
        ("raise KeyError('lost')", "ask raised KeyError: 'lost' (generation 1)"),
    ],
)
def test_search_that_fails_ends_its_run_in_one_line(tmp_path: Path, last: str, words: str) -> None:
    (tmp_path / "mine.py").write_text(BODY + f"        {last}\n")
    config = load_config(GRIDWORLD_FILE, [*CLIFF, f"agents.gtn.search={tmp_path / 'mine.py'}:Mine"])
    with pytest.raises(envolve.RunError) as caught:
        go(config, tmp_path / "run")
    assert words in str(caught.value) and "mine.py" in str(caught.value) and "\n" not in str(caught.value)


def test_search_that_fails_later_keeps_its_checkpoint(tmp_path: Path) -> None:
    text = BODY + "        return worlds / (self.generation < 2)\n"
    (tmp_path / "mine.py").write_text(text)
    config = load_config(GRIDWORLD_FILE, [*CLIFF, f"agents.gtn.search={tmp_path / 'mine.py'}:Mine"])
    with pytest.raises(envolve.RunError, match=r"not finite|raised ZeroDivisionError"):
        go(config, tmp_path / "run")
    run = Run(config, tmp_path / "run", Direct(), resume=True)
    assert run.strategy.state.generation == 2


def test_state_that_no_checkpoint_can_hold_is_refused_at_the_start(tmp_path: Path) -> None:
    text = BODY.replace("return {}", "return {'rng': object()}") + "        return worlds\n"
    (tmp_path / "mine.py").write_text(text)
    config = load_config(GRIDWORLD_FILE, [*CLIFF, f"agents.gtn.search={tmp_path / 'mine.py'}:Mine"])
    with pytest.raises(envolve.RunError, match=r"state\(\)\['rng'\] is object, expected a tensor"):
        Run(config, tmp_path, Direct())


# ------------------------------------------------------------------------------------------------ what is executed


def test_changed_file_is_not_executed(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "run")
    config = load_config(tmp_path / "run" / "my_own.yaml", TINY)
    store_config(tmp_path / "run", config)
    with (tmp_path / "run" / "my_task.py").open("a") as f:
        f.write("raise SystemExit('executed')\n")
    with pytest.raises(ConfigError, match="it was changed"):
        load_config(tmp_path / "run" / "config.yaml")


def test_only_allowed_folders_are_searched_and_the_sync_folder_never(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(plugins, "_folders", [])
    monkeypatch.setattr(plugins, "_never", [])
    monkeypatch.setattr(plugins, "_sources", {})
    text = b"raise ValueError('executed')\n"
    sha256 = __import__("hashlib").sha256(text).hexdigest()
    for folder in ("run", "sync", "run/deep/deeper"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("../run/evil.py", "/etc/passwd", "evil", "a b.py", 3, "evil.py\n"):
        with pytest.raises(PluginError, match="file name"):
            plugins.find(name, sha256)
    (tmp_path / "sync" / "evil.py").write_bytes(text)
    (tmp_path / "run" / "deep" / "deeper" / "evil.py").write_bytes(text)
    with pytest.raises(PluginError, match="no folder is allowed here"):
        plugins.find("evil.py", sha256)
    plugins.allow(tmp_path)
    plugins.never(tmp_path / "sync")
    with pytest.raises(PluginError, match="found no evil.py"):
        plugins.find("evil.py", sha256)
    (tmp_path / "run" / "evil.py").write_bytes(text + b"# another\n")
    with pytest.raises(PluginError, match="is another version of it"):
        plugins.find("evil.py", sha256)
    (tmp_path / "run" / "evil.py").write_bytes(text)
    with pytest.raises(PluginError, match=r"evil.py:1: ValueError: executed"):  # it is what the user trusts
        plugins.find("evil.py", sha256)


def test_a_worker_that_refuses_ends_the_run_not_its_members(tmp_path: Path) -> None:
    def refuse(chunk: Chunk, values: dict) -> object:
        return ChunkResult.failed(chunk, "", "refused: plugins: no") if chunk.chunk_id == 1 else values

    config = load_config(GRIDWORLD_FILE, CLIFF)
    with pytest.raises(envolve.RunError, match="a worker cannot evaluate generation 1 chunk 1"):
        go(config, tmp_path / "run", dispatcher=Direct(change=refuse))


# ------------------------------------------------------------------------------------- arguments of a task of one's own

PUSHED = """
    def __init__(self, max_steps=None, solved_reward=None, push=2.0):
        super().__init__(max_steps, solved_reward)
        self.PUSH = push

    STEP, PUSH"""


def with_arguments(folder: Path, **arguments: object) -> TaskChoice:
    """The example with a task whose class takes an argument."""
    shutil.copytree(EXAMPLES, folder)
    text = (EXAMPLES / "my_task.py").read_text()
    (folder / "my_task.py").write_text(text.replace("\n    STEP, PUSH", PUSHED))
    return TaskChoice("my_task.py:PointMass", env_kwargs=arguments)


def test_arguments_of_a_task_reach_the_worker_the_folder_and_the_world(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    config = load_config(folder / "my_own.yaml", TINY, with_arguments(folder, push=5.0))
    assert config.data["envs"]["PointMass"]["env_kwargs"] == {"push": 5.0} and make_task("PointMass").PUSH == 5.0
    evaluate(own().data, torch.zeros(1, 1), torch.tensor([1]), REAL_BUDGET)  # a chunk of another run comes between
    assert make_task("PointMass").PUSH == 2.0
    evaluate(config.data, torch.zeros(1, 1), torch.tensor([1]), REAL_BUDGET)
    assert make_task("PointMass").PUSH == 5.0
    run = tmp_path / "run"
    run.mkdir()
    store_config(run, config)
    go(config, run)
    assert read_world(str(run / "model.pt")).task().PUSH == 5.0
    assert load_config(run / "config.yaml").data == config.data
    own()  # another class of this name, without the argument
    with pytest.raises(WorldFileError, match="key 'env_name'.*unexpected keyword argument 'push'"):
        read_world(str(run / "model.pt"))


@pytest.mark.parametrize(
    "arguments, words", [({"pusch": 1.0}, "unexpected keyword argument 'pusch'"), ({"max_steps": 3}, "found max_steps")]
)
def test_arguments_that_a_task_refuses(tmp_path: Path, arguments: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(tmp_path / "x" / "my_own.yaml", TINY, with_arguments(tmp_path / "x", **arguments))


SAID = {  # what each notebook prints
    "a_world_in_a_notebook": r"^True 3 .*An agent needs.*WorldEnv",
    "policy_gradients_in_seconds": r"right: return on CartPole-v1 [45]\d\d\..*sign: return on CartPole-v1 \d{1,2}\.\d\n"
    r"probability.* [2-5]\d\d\.\d\n.*other contexts: return on CartPole-v1 \d{1,2}\.\d\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel: pip install nbclient ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install ipykernel")
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), f"{path}: found outputs, expected none"
    for file in ROOT.glob("default_config_*.yaml"):
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert re.search(SAID[path.stem], said, re.DOTALL), said
