"""benchmarks/: what run.py knows, refuses and makes of the figures; the floors; the plain scripts. Nothing is timed."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import distributed, floors, run
from benchmarks.common import harness, table
from benchmarks.common.catalogue import BENCHMARKS
from benchmarks.common.settings import SETTINGS
from benchmarks.peers import environment

ROOT = Path(__file__).parents[2]


# --- the list ---------------------------------------------------------------------------------------------------------


def test_every_benchmark_is_on_the_list(capsys):
    assert run.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)
    assert [line.split()[0] for line in lines if "only with --only" in line] == ["evolve"]


def defined(path: Path) -> set[str]:
    """Names at the top of a file, also within its conditions."""
    names: set[str] = set()
    todo: list[ast.AST] = list(ast.parse(path.read_text()).body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        else:
            names.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            todo.extend(n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt))
    return names


def test_what_benchmarks_import_of_the_project_exists():
    """Some import it only where another library is installed."""
    wrong, seen = [], 0
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("envolve."):
                place = ROOT.joinpath(*node.module.split(".")[1:])
                file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
                there = defined(file) if file.exists() else set()
                for alias in node.names:
                    seen += 1
                    if alias.name not in there and not (place / f"{alias.name}.py").exists():
                        wrong.append(f"{path.name}:{node.lineno}: {node.module} has no {alias.name}")
    assert seen > 50 and not wrong


def test_every_file_that_measures_belongs_to_a_benchmark():
    files = {p.relative_to(ROOT / "benchmarks").with_suffix("") for p in (ROOT / "benchmarks").rglob("*.py")}
    scripts = {".".join(f.parts) for f in files if "main(" in (ROOT / "benchmarks" / f).with_suffix(".py").read_text()}
    modules = {r.module for b in BENCHMARKS.values() for r in b.runs}
    # started by hand: they take many minutes, or print what they are to be compared with
    own_tables = {"capacity", "ranking", "shaped_learning", "peers.sb3_shaped", "shaped_ppo", "vetting", "graph_speed"}
    own_tables |= {"scaling", "bohb", "distributed", "distributed_learning", "contrastive", "peers.jax_contrastive"}
    own_tables |= {
        "peers.torchrl_sac",
        "searches",
        "any_env.adapter",
        "any_env.learners",
        "worlds.zoo",
        "worlds.equal_price",
        "on_ray",
    }
    own_tables |= {
        "worlds.continuous_control",
        "worlds.continuous_figure",
        "worlds.budget_figure",
        "worlds.bandit_generation",
        "worlds.perturbed",
        "worlds.bugs",
        "worlds.learner_check",
        "rewards.study",
    }
    own_tables |= {"simulators.mjlab_learning", "simulators.mjlab_candidates", "first_generation"}
    own_tables |= {"worlds.hyperparameter_ranks", "worlds.goal_starts"}
    assert scripts - {"run", "floors", "common.harness"} - own_tables == modules


def test_every_setting_is_measured_by_this_project_and_by_a_plain_script():
    for case in SETTINGS:
        runs = [r for b in BENCHMARKS.values() for r in b.runs if r.case == case]
        names = {r.name.partition("_")[0] for r in runs}
        assert {"compiled", "torch", "plain"} <= names, case
        assert all(r.args[0] == case for r in runs)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_implementations_have_names_of_their_own(name):
    names = [r.name for r in BENCHMARKS[name].runs]
    assert len(set(names)) == len(names)
    assert {r.where for r in BENCHMARKS[name].runs} <= {"project", "peers", "gpu"}


# --- the command line -------------------------------------------------------------------------------------------------


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        run.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    words = ("--only", "--json", "--list", "--no-peers", "--quick", "--time-limit", "per_core", ".venv-peers")
    assert all(word in text for word in words)


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--only", "tabullar_q"], "nearest: 'tabular_q'"),
        (["--only", "tabular_q", "exchange"], "nearest: 'exchange_overhead'"),
        (["--json", "/nowhere/at/all.json"], "expected a file in a folder that exists"),
        (["--json", str(ROOT)], "expected a file in a folder that exists"),
        (["--time-limit", "0"], "expected seconds above 0"),
    ],
)
def test_refused_before_anything_runs(argv, words, capsys, monkeypatch):
    monkeypatch.setattr(run, "start", lambda *args: pytest.fail("a benchmark was started"))
    monkeypatch.setattr(environment, "ensure", lambda: pytest.fail("peers were installed"))
    with pytest.raises(SystemExit) as stop:
        run.main(argv)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


# --- one table and one file -------------------------------------------------------------------------------------------


def speed(per_core, members=1):
    return {"per_core": per_core, "runs": [0.9 * per_core, per_core, 1.2 * per_core], "members": members, "steps": 10}


RAW = {  # by module and what follows it on the command line
    "floors": {
        "library": {"gflop_per_s": 100.0, "ns_per_tanh": 0.2},
        "core": {"gflop_per_s": 250.0, "ns_per_tanh": 0.1},
    },
    "learners ddqn_in_se compiled": speed(65000.0, 32),
    "learners ddqn_in_se torch": speed(25000.0, 32),
    "plain.ddqn ddqn_in_se": speed(1000.0),
    "tabular": {
        **{"compile_or_load_s": 1.0, "plain.ql.steps_per_s": 2e6, "plain.ql.runs": [2e6], "plain.ql.members": 1},
        **{"compiled.sarsa.steps_per_s": 1.5e8, "compiled.sarsa.runs": [1.5e8], "compiled.sarsa.members": 256},
    },
    "exchange_overhead": {"milliseconds_per_generation": 12.5, "all": [12.0, 13.0]},
    "evolve": {"config": "c.yaml", "runs": [{"seconds": s, "solved": s < 50} for s in (30.0, 40.0, 90.0)]},
    "memory 32 torch": {"figures": {"peak_mib": 640.0, "mib_per_member": 4.5}, "members": 32},
}


@pytest.fixture
def recorded(monkeypatch):
    """Processes that hand back what is recorded above; any other implementation fails. -> what was started"""
    started = []

    def start(module, args, python, limit, folder):
        started.append((" ".join([module, *args]), python, limit))
        found = [v for k, v in RAW.items() if started[-1][0].startswith(k) and len(k.split()) in (1, len(args) + 1)]
        return dict(found[0]) if found else {"error": "ValueError: not recorded"}

    monkeypatch.setattr(run, "start", start)
    monkeypatch.setattr(run, "has_gpu", lambda: False)
    monkeypatch.setattr(environment, "ensure", lambda: Path(sys.executable))
    monkeypatch.setattr(environment, "versions", lambda python: {"jax": "1.2.3"})
    return started


def test_one_table_and_one_file(tmp_path, capsys, recorded):
    names = ["ddqn_in_se", "tabular_q", "exchange_overhead", "evolve", "memory"]
    assert run.main(["--only", *names, "tabular_q", "--json", str(tmp_path / "out.json")]) == 1  # not all are recorded
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["ddqn_in_se.compiled.per_core"] == 65000.0
    assert report["ddqn_in_se.torch.per_core"] == 25000.0
    assert report["ddqn_in_se.plain.per_core"] == 1000.0
    assert report["tabular_q.plain.per_core"] == 2e6
    assert report["tabular_q.compiled_sarsa.per_core"] == 1.5e8
    assert report["exchange_overhead.envolve.milliseconds_per_generation"] == 12.5
    assert report["memory.torch_p32.peak_mib"] == 640.0
    figures = ("runs", "solved", "median_seconds", "most_seconds")
    assert [report[f"evolve.envolve.{k}"] for k in figures] == [3, 2, 40.0, 90.0]
    assert {"machine", "versions", "peer_versions", "floor", "raw"} < set(report)
    assert report["raw"]["ddqn_in_se"]["jax"] == {"error": "ValueError: not recorded"}
    library, core = (1 / floors.step("ddqn_in_se").seconds(RAW["floors"][k]) for k in ("library", "core"))
    assert report["ddqn_in_se.compiled.library_floor_steps_per_s"] == pytest.approx(library)
    assert report["ddqn_in_se.compiled.core_floor_steps_per_s"] == pytest.approx(core)

    out = capsys.readouterr().out
    lines = [line.split("│") for line in out.splitlines() if "│" in line]
    cells = {line[1].strip(): [cell.strip() for cell in line[2:-1]] for line in lines}
    shares = [f"{6500000 / floor:.0f} % of {floor:,.0f}" for floor in (library, core)]
    assert cells["compiled"] == ["32", "65,000/s", "58,500 to 78,000", "65", *shares]
    assert cells["plain"][:2] == ["1", "2,000,000/s"] and cells["compiled_sarsa"][3] == "75"
    assert cells["jax"][1:3] == ["no figure", "ValueError: not recorded"]
    assert "jax 1.2.3" in out and "100 GFLOP/s" in out


def test_a_suffix_names_another_setting_with_a_baseline_of_its_own():
    results = {"compiled_a": speed(50.0), "plain_a": speed(10.0), "plain": speed(5.0), "torch_p8": speed(20.0)}
    ratios = {row[0]: row[4] for row in table.rows({"raw": {"ddqn_two_layer": results}}, "ddqn_two_layer")}
    assert ratios == {"compiled_a": "5", "plain_a": "1", "plain": "1", "torch_p8": "4"}


def test_a_busy_machine_is_mentioned():
    report = {"machine": {"cpu": "x", "cores": 2, "load_before": 3.0}, "raw": {}}
    assert any(line.startswith("WARNING") for line in table.header(report))
    report["machine"]["load_before"] = 0.1
    assert not any(line.startswith("WARNING") for line in table.header(report))


def test_peers_run_in_their_environment_and_can_be_left_out(recorded, monkeypatch, capsys):
    monkeypatch.setattr(environment, "ensure", lambda: Path("/bin/sh"))
    run.main(["--only", "ppo_cartpole"])
    pythons = {command: python for command, python, _ in recorded}
    assert pythons["peers.sb3 ppo_cartpole"] == "/bin/sh" and pythons["plain.ppo ppo_cartpole"] == sys.executable
    recorded.clear()
    monkeypatch.setattr(environment, "ensure", lambda: pytest.fail("peers were installed"))
    run.main(["--only", "ppo_cartpole", "--no-peers"])
    assert recorded and not any(command.startswith("peers") for command, _, _ in recorded)
    assert "sb3" not in capsys.readouterr().out.split("ppo_cartpole: ")[-1]


def test_without_their_environment_each_peer_has_a_row_that_says_so(recorded, monkeypatch, capsys):
    def unavailable():
        raise environment.Unavailable("no way to the package index")

    monkeypatch.setattr(environment, "ensure", unavailable)
    assert run.main(["--only", "ppo_cartpole"]) == 1
    rows = [line for line in capsys.readouterr().out.splitlines() if "no way to the package index" in line]
    assert len(rows) == 2  # sb3 and jax
    assert not any(command.startswith("peers") for command, _, _ in recorded)


def test_gpu_rows_where_there_is_one(recorded, monkeypatch):
    monkeypatch.setattr(run, "has_gpu", lambda: True)
    run.main(["--only", "ddqn_in_se", "--no-peers"])
    assert "learners ddqn_in_se cuda --members 2048" in [command for command, _, _ in recorded]


def test_peers_are_installed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVOLVE_PEERS", str(tmp_path / "peers"))
    monkeypatch.setattr(environment, "REQUIREMENTS", tmp_path / "requirements.txt")
    environment.REQUIREMENTS.write_text("torch==2.13.0\njax[cpu]\n")
    commands = []

    class Done:
        returncode, stdout, stderr = 0, "", ""

    def pip(command, **kw):
        commands.append(command)
        (tmp_path / "peers" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "peers" / "bin" / "python").touch()
        return Done

    monkeypatch.setattr(environment.subprocess, "run", pip)
    with pytest.raises(environment.Unavailable, match="does not hold"):
        environment.ensure(install=False)
    python = environment.ensure()
    assert python == tmp_path / "peers" / "bin" / "python" and len(commands) == 3
    assert commands[1][-1] == "torch==2.13.0" and environment.TORCH_INDEX in commands[1]
    environment.ensure()
    assert len(commands) == 3
    environment.REQUIREMENTS.write_text("torch==2.13.0\njax[cpu]\nflax\n")
    environment.ensure()
    assert len(commands) == 6
    monkeypatch.setattr(Done, "returncode", 1)
    monkeypatch.setattr(Done, "stderr", "noise\nERROR: no such package")
    environment.REQUIREMENTS.write_text("torch==2.13.0\nnothing\n")
    with pytest.raises(environment.Unavailable, match="ERROR: no such package"):
        environment.ensure()


def test_peers_have_the_torch_of_this_project():
    def torch_line(path):
        return next(line for line in path.read_text().splitlines() if line.startswith("torch=="))

    assert torch_line(environment.REQUIREMENTS) == torch_line(ROOT / "requirements.txt")
    assert ".venv-peers/" in (ROOT / ".gitignore").read_text().splitlines()


# --- distributed SAC beside TorchRL -----------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
def test_ray_is_measured_where_it_is_installed_and_torchrl_where_its_python_is_given(capsys, monkeypatch, there):
    monkeypatch.setattr(distributed, "installed", lambda: there)
    own = ["sb3", *distributed.VARIANTS, *(distributed.ON_RAY if there else ())]
    assert distributed.arguments([]).only == own
    everything = distributed.arguments(["--torchrl", "python"]).only
    assert everything == own + distributed.TORCHRL
    assert [f"torchrl-{mode}-{n}" in everything for mode in ("sync", "async") for n in (1, 2, 4)] == [True] * 6
    assert distributed.arguments(["--torchrl", "python", "--only", "torchrl-sync-2"]).only == ["torchrl-sync-2"]
    with pytest.raises(SystemExit) as stop:
        distributed.arguments(["--only", "embedded", "torchrl-sync-2"])
    assert stop.value.code == 2
    assert "found torchrl-sync-2, expected --torchrl PYTHON" in capsys.readouterr().err


def test_torchrl_stands_in_the_same_table(tmp_path, capsys):
    python, file = tmp_path / "python", tmp_path / "figures.json"
    python.write_text(
        '#!/bin/sh\necho "$@" >> ' + str(tmp_path / "calls") + "\necho noise of a library\n"
        """echo '{"env steps/s": 20.5, "gradient steps/s": 20, "versions": {"torchrl": "1.2.3"}}'\n"""
    )
    python.chmod(0o755)
    names = ["torchrl-sync-1", "torchrl-async-4"]
    distributed.main(["--torchrl", str(python), "--iterations", "3", "--json", str(file), "--only", *names])
    lines, figures = capsys.readouterr().out.splitlines(), json.loads(file.read_text())
    assert [line.split()[0] for line in lines[:2]] == names and "env steps/s 20.5" in lines[0]
    assert lines[2] == "TorchRL's Python: torchrl 1.2.3"
    assert figures["versions"] == {"torchrl": "1.2.3"} and figures["torchrl-async-4"]["gradient steps/s"] == 20
    peer = ROOT / "benchmarks" / "peers" / "torchrl_sac.py"
    assert (tmp_path / "calls").read_text().splitlines() == [f"{peer} {name} --iterations 3" for name in names]


def test_torchrl_learns_with_the_hyperparameters_of_this_project():
    from envolve.distributed.files.params import TrainParamsBase

    tree = ast.parse((ROOT / "benchmarks" / "peers" / "torchrl_sac.py").read_text())
    names, values = next(
        ([target.id for target in node.targets[0].elts], node.value.elts)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    )
    own = {name: ast.literal_eval(value) for name, value in zip(names, values) if name != "MEMORY"}
    p = TrainParamsBase()
    assert p.actor_lr == p.critic_lr == p.alpha_lr
    wanted = {"HIDDEN": list(p.hidden), "BATCH": p.batch_size, "RATE": p.actor_lr, "GAMMA": p.gamma, "TAU": p.tau}
    assert own == wanted


def test_a_family_is_found_down_to_grandchildren():
    child = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    try:
        grandchild = int(child.stdout.readline())
        assert {os.getpid(), child.pid, grandchild} <= set(distributed.family(os.getpid()))
        assert distributed.family(child.pid) == sorted([child.pid, grandchild])
        assert distributed.cpu_of([child.pid, grandchild]) < 30
    finally:
        os.kill(grandchild, signal.SIGKILL)
        child.wait()


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_crashes(tmp_path, capfd):
    result = run.start("nothing_of_this_name", [], sys.executable, 60, tmp_path)
    assert "nothing_of_this_name" in result["error"]
    assert "nothing_of_this_name" in capfd.readouterr().err


def test_a_process_that_hangs_is_ended(tmp_path):
    script = tmp_path / "python"  # stands in for the interpreter
    script.write_text("#!/bin/sh\nsleep 60 & wait\n")
    script.chmod(0o755)
    assert run.start("ddqn", [], str(script), 1.0, tmp_path) == {"error": "not finished after 1 s"}
    running = []  # of which a slow machine may never have begun the script
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            running.append(words.read_bytes())
    assert running and not [words for words in running if os.fsencode(script) in words]


def test_an_unknown_implementation_is_refused(capsys):
    with pytest.raises(SystemExit):
        harness.main("doc", {"torch": lambda *args: {}}, ["ddqn_in_se", "fortran"])
    assert "fortran" in capsys.readouterr().err


def test_measure_counts_what_was_done_and_repeats_five_times():
    calls = []

    def timed(n):
        calls.append(n)
        return 3 * n, n * 1e-3  # three members, a thousand steps of each per second

    result = harness.measure(timed, 10, members=3)
    assert result["per_core"] == pytest.approx(3000) and result["steps"] == 1000 and len(result["runs"]) == 5
    assert calls == [10, 10, 40, 160, *[1000] * 5]
    assert harness.measure(timed, 10, quick=True)["runs"] == [pytest.approx(3000)]


# --- floors -----------------------------------------------------------------------------------------------------------


def test_the_floor_of_the_published_ddqn_by_hand():
    # 3 forward passes of 4-57-2 and one back, 199 samples: 0.59 MFLOP and 34,029 tanh (spec, section 2.5)
    forward, backward = 2 * (4 * 57 + 57 * 2), 2 * (4 * 57 + 57 * 2) + 2 * 57 * 2
    count = floors.ddqn(SETTINGS["ddqn_in_se"])
    assert count.flop == 199 * (3 * forward + backward) + forward
    assert count.tanh == 199 * 3 * 57 + 57
    assert floors.world(SETTINGS["ddqn_in_se"]).flop == 2 * (3 * 6 * 83 + 83 * (4 + 1 + 1))
    assert floors.Count(110e3, 10).seconds({"gflop_per_s": 110, "ns_per_tanh": 0.2}) == pytest.approx(1.002e-6)


def flop_of(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def nets(*widths):
    """Layers without activations (they cost no product) -> forward(x), parameters."""
    weights = [torch.randn(k, m, requires_grad=True) for k, m in zip(widths, widths[1:])]

    def forward(x):
        for w in weights:
            x = x @ w
        return x

    return forward, weights


def test_floors_of_ddqn_and_dueling_are_what_torch_counts():
    s = SETTINGS["dueling_in_se"]
    (features, w), (value, w_v), (advantage, w_a) = nets(4, 128, 128, 128), nets(128, 128, 1), nets(128, 128, 2)
    x = torch.randn(s.learner["batch_size"], 4)

    def q(x):
        f = features(x)
        return value(f) + advantage(f)

    def update():
        with torch.no_grad():
            q(x), q(x)
        torch.autograd.grad(q(x).sum(), [*w, *w_v, *w_a])

    acting = flop_of(lambda: q(x[:1].detach()))
    assert floors.dueling(s).flop == flop_of(update) + acting

    s = SETTINGS["ddqn_two_layer"]
    net, w = nets(4, 128, 128, 2)

    def plain_update():
        with torch.no_grad():
            net(x), net(x)
        torch.autograd.grad(net(x).sum(), w)

    assert floors.ddqn(s).flop == flop_of(plain_update) + flop_of(lambda: net(x[:1]))


@pytest.mark.parametrize("case", ["td3_mountain_car_continuous", "td3_discrete_in_se", "sac_pendulum"])
def test_floors_of_actor_critics_are_what_torch_counts(case):
    s = SETTINGS[case]
    (F, A), h, B, sac = s.sizes, s.learner["hidden_size"], s.learner["batch_size"], s.agent == "sac"
    actor, w = nets(F, h, h, 2 * A if sac else A)
    critics = [nets(F + A, h, h, 1) for _ in range(2)]
    obs, both = torch.randn(B, F), torch.randn(B, F + A)
    first = [c[1][0].detach() for c in critics]

    def q_of_action(i, action):  # the observation's part of the first layer apart: no gradient goes there
        x = obs @ first[i][:F] + action @ first[i][F:]
        for weight in critics[i][1][1:]:
            x = x @ weight.detach()
        return x

    def critics_update():
        with torch.no_grad():
            actor(obs), critics[0][0](both), critics[1][0](both)
        for critic, weights in critics:
            torch.autograd.grad(critic(both).sum(), weights)

    def actor_update():
        action = actor(obs)[:, :A]
        q = q_of_action(0, action) + (q_of_action(1, action) if sac else 0)
        torch.autograd.grad(q.sum(), w)

    expected = flop_of(critics_update) + flop_of(actor_update) / s.learner.get("policy_delay", 1)
    assert floors.LEARNERS[s.agent](s).flop == pytest.approx(expected + flop_of(lambda: actor(obs[:1])), rel=1e-12)


def test_the_floor_of_ppo_is_what_torch_counts_for_a_rollout():
    s = SETTINGS["ppo_cartpole"]
    (actor, w), (critic, w_c) = nets(4, 64, 64, 2), nets(4, 64, 64, 1)
    N, T = s.ppo["num_envs"], s.ppo["num_steps"]

    def rollout_and_update():
        x = torch.randn(N, 4)
        with torch.no_grad():
            for _ in range(T):
                actor(x), critic(x)
            critic(x)
        for _ in range(s.ppo["update_epochs"] * s.ppo["num_minibatches"]):
            x = torch.randn(N * T // s.ppo["num_minibatches"], 4)
            torch.autograd.grad(actor(x).sum() + critic(x).sum(), [*w, *w_c])

    assert floors.ppo(s).flop * N * T == pytest.approx(flop_of(rollout_and_update), rel=1e-12)


def test_every_setting_has_a_floor():
    for case in SETTINGS:
        assert 1e-6 < floors.step(case).seconds({"gflop_per_s": 110, "ns_per_tanh": 0.2}) < 1e-2


# --- the scripts they are compared with -------------------------------------------------------------------------------


PLAIN = [(r.module, r.case) for b in BENCHMARKS.values() for r in b.runs if r.module.startswith("plain.")]


@pytest.mark.parametrize("module, case", PLAIN)
def test_plain_scripts_learn(module, case, monkeypatch):
    """Their networks move and stay finite: no figure of a script that trains nothing."""
    script = importlib.import_module(f"benchmarks.{module}")
    made = []
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, **kw: made.append(adam(*a, **kw)) or made[-1])
    torch.manual_seed(0)
    train = script.script(SETTINGS[case])
    parameters = [p for optimizer in made for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    train(512 if case == "ppo_cartpole" else 4)
    assert made and all(not torch.equal(p, q) for p, q in zip(parameters, before))
    assert all(torch.isfinite(p).all() for p in parameters)


@pytest.mark.parametrize("case", SETTINGS)
def test_this_project_trains_at_the_settings(case):
    """The sections accept the settings: a name that an agent does not know would be noticed here, not after minutes."""
    from benchmarks.learners import section_of, task_of

    section = section_of(SETTINGS[case], 100)
    assert section.train_steps >= 100 and section.init_episodes == 0
    assert section.hidden_size == SETTINGS[case].learner["hidden_size"]
    assert task_of(SETTINGS[case]).max_steps == SETTINGS[case].max_steps


@pytest.mark.skipif(importlib.util.find_spec("stable_baselines3") is None, reason="needs Stable-Baselines3")
@pytest.mark.parametrize("case", ["ddqn_in_se", "td3_mountain_car_continuous", "sac_pendulum", "ppo_cartpole"])
def test_stable_baselines_trains_at_the_settings(case):
    from benchmarks.peers.sb3 import model

    agent = model(SETTINGS[case])
    agent.learn(512 if case == "ppo_cartpole" else 3)
    assert agent.num_timesteps >= 3
