"""Trainings in locked processes: what one may do, and what becomes of one that raises, hangs, dies or eats memory."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("stable_baselines3")

from envolve.llm.gym import train
from envolve.llm.gym.config import load_gym_config
from envolve.llm.gym.method import with_reward
from envolve.llm.gym.train import JobOutcome, Limits, TrainingJob, _outcome, _Running, read_if_plain, run_jobs
from envolve.llm.vetting.jail import locks as jail
from tests.llm.gym.test_method import Base
from tests.llm.gym.user import ENV, method, write_config, write_user_env
from tests.test_layout import ROOT

jailed = pytest.mark.skipif(bool(jail.missing()), reason=f"this kernel cannot jail: no {', no '.join(jail.missing())}")
FAST = Limits(seconds=120.0, memory=2**30)

# Code that no allow-list would let through, run past it: the jail alone must hold. BUILTINS hide open and the like, so
# it is found again by way of a module that numpy has imported.
BREAK_OUT = """
if "tried" not in self.reward_memory:
    self.reward_memory["tried"] = 1
    builtin = np.ma.core.builtins
    opened = builtin.open
    os = np.lib._datasource.os
    found = {{}}
    for name, attempt in {{
        "read": lambda: opened("{secret}").read(),
        "project": lambda: opened("{project}").read(),
        "write": lambda: opened("{target}", "w").write("x"),
        "keys": lambda: os.environ["OPENAI_API_KEY"],
        "run": lambda: os.system("touch {target}") == 0 or 1 / 0,
        "fork": lambda: os.fork(),
        "kill": lambda: os.kill(os.getppid(), 0),
        "net": lambda: np.testing._private.utils.sys.modules["socket"].socket(),
        "link": lambda: os.symlink("{secret}", "{out}/link"),
    }}.items():
        try:
            attempt()
        except builtin.BaseException:
            found[name] = 0.0
        else:
            found[name] = 1.0
    self.reward_memory["found"] = found
return 0.0, self.reward_memory["found"]
"""


PROJECT = ROOT / "pyproject.toml"
ATTEMPTS = {"read", "project", "write", "keys", "run", "fork", "kill", "net", "link"}


def job(folder: Path, code: str, *overrides: str, mode: str = "train", name: str = "job") -> TrainingJob:
    env = folder / "envs" / "walk"
    if not env.exists():
        write_user_env(folder)
        write_config(folder, ["none"])
    config = load_gym_config(folder / "walk.yml", overrides)
    return TrainingJob(folder / name, mode, config, 0, env, code)


def test_a_job_may_have_test_episodes_of_its_own(tmp_path: Path) -> None:
    plain = job(tmp_path, "", name="plain")
    own = replace(job(tmp_path, "", name="own"), tests=77)
    for one in (plain, own):
        one.folder.mkdir(parents=True)
        one.prepare(Limits())
    seeds = [json.loads((j.folder / "job.json").read_text())["rl"]["training"]["eval"]["seed"] for j in (plain, own)]
    assert seeds == [plain.config.rl.training.eval.seed, 77]


def run(*jobs: TrainingJob, limits: Limits = FAST, parallel: int = 2) -> dict[str, JobOutcome]:
    return {j.folder.name: outcome for j, outcome in run_jobs(jobs, parallel, limits)}


@jailed
def test_the_jail_holds_what_the_allow_list_would_not_let_through(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    secret, target = tmp_path / "secret", tmp_path / "written"
    secret.write_text("planted")
    code = method(BREAK_OUT.format(secret=secret, target=target, out=tmp_path / "job" / "out", project=PROJECT))
    outcome = run(job(tmp_path, code))["job"]
    assert outcome.error is None, outcome.error
    assert {name: outcome.final[name] for name in ATTEMPTS} == dict.fromkeys(ATTEMPTS, 0.0)
    assert not target.exists() and not (tmp_path / "job" / "out" / "link").is_symlink()


def test_the_same_attempts_succeed_without_a_jail(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("planted")
    code = BREAK_OUT.format(secret=tmp_path / "secret", target=tmp_path / "written", out=tmp_path, project=PROJECT)
    env = with_reward(Base, method(code.replace("lambda: os.fork()", "lambda: os.getpid()")), {})()
    env.reset()
    assert env.ask() == (0.0, dict.fromkeys(ATTEMPTS, 1.0))


@jailed
@pytest.mark.slow
def test_every_way_to_fail_is_the_samples_own(tmp_path) -> None:
    codes = {
        "raises": "return self.nothing_there, {}",
        "nan": "return float('nan') * x[0], {}",
        "late": "n = self.reward_memory.get('n', 0) + 1\nself.reward_memory['n'] = n\nreturn 1.0 / max(0, 7 - n), {}",
        "memory": "return float(np.zeros((60000, 60000)).sum()), {}",
        "hangs": "for i in range(10**12):\n    pass\nreturn 0.0, {}",
        "dies": "np.ma.core.builtins.__import__('os')._exit(3)\nreturn 0.0, {}",
        "good": "return float(x[0]), {}",
    }
    limits = Limits(seconds=25.0, memory=2**30)
    start = time.monotonic()
    found = run(*[job(tmp_path, method(code), name=name) for name, code in codes.items()], limits=limits)
    assert time.monotonic() - start < 200
    texts = {name: outcome.error for name, outcome in found.items()}
    assert found["good"].error is None and found["good"].final["fitness_score"] != 0
    assert "has no attribute 'nothing_there'" in texts["raises"] and "line 2" in texts["raises"]
    assert "the total reward is nan" in texts["nan"]
    assert "ZeroDivisionError" in texts["late"] and found["late"].kind == "reward"
    assert "Unable to allocate" in texts["memory"] or "memory" in texts["memory"]
    assert "takes too long" in texts["hangs"] or "CPU time" in texts["hangs"]
    assert "ended with code 3" in texts["dies"] and found["dies"].kind == "killed"


@jailed
@pytest.mark.slow
@pytest.mark.parametrize("algo", ["sac", "dqn", "td3", "ddpg"])
def test_every_algorithm_trains(tmp_path, algo) -> None:
    env = ENV
    if algo == "dqn":
        env = ENV.replace("gymnasium.spaces.Box(-1, 1, (1,), np.float32)", "gymnasium.spaces.Discrete(3)")
        env = env.replace("0.5 * action", "0.5 * (action - 1.0)")
    write_user_env(tmp_path, env)
    write_config(tmp_path, ["none"])
    params = "rl.algo_params={policy: MlpPolicy, learning_starts: 32, batch_size: 16, buffer_size: 500}"
    rest = ["rl.architecture={net_arch: [4], share_features_extractor: true}", "rl.training.state_stack=2"]
    outcome = run(job(tmp_path, method("return float(x[0]), {}"), f"rl.algo={algo}", params, *rest))["job"]
    assert outcome.error is None, outcome.error
    assert outcome.curves["timesteps"] == [64.0, 128.0] and outcome.timesteps == 128


@jailed
@pytest.mark.slow
def test_environments_in_processes_of_their_own(tmp_path) -> None:
    overrides = ["rl.training.multithreaded=true", "rl.training.num_envs=2"]
    good = job(tmp_path, method("return float(x[0]), {}"), *overrides, name="good")
    bad = job(tmp_path, method("return self.nothing_there, {}"), *overrides, name="bad")
    secret = tmp_path / "secret"
    secret.write_text("planted")
    code = f"np.ma.core.builtins.open({str(secret)!r})\nreturn 0.0, {{}}"
    found = run(good, bad, job(tmp_path, method(code), *overrides, name="reads"))
    assert found["good"].error is None, found["good"].error
    assert "has no attribute 'nothing_there'" in str(found["bad"].error)
    assert "PermissionError" in str(found["reads"].error)


@jailed
@pytest.mark.slow
def test_a_warm_start_takes_weights_of_the_same_shape_only(tmp_path) -> None:
    code = method("return float(x[0]), {}")
    first = job(tmp_path, code, name="first")
    assert run(first)["first"].error is None
    model = first.folder / "out" / "model.zip"
    jobs = [job(tmp_path, code, name="same"), job(tmp_path, code, "rl.training.state_stack=3", name="other")]
    found = run(*[TrainingJob(j.folder, "train", j.config, 0, j.env_folder, code, model) for j in jobs])
    assert any("from model.zip of the best" in n for n in found["same"].notes)
    assert any("not done" in n and "expected (4, 3)" in n for n in found["other"].notes)
    assert found["other"].error is None


@jailed
def test_what_is_wrong_with_the_users_environment_is_the_users(tmp_path) -> None:
    write_user_env(tmp_path, ENV.replace('parts["fitness_score"]', 'parts["fitnes"]'))
    write_config(tmp_path, ["none"])
    outcome = run(job(tmp_path, method("return 0.0, {}"), mode="check"))["job"]
    assert outcome.kind == "user" and "'fitness_score'" in str(outcome.error)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Makes a shell script what trains."""

    def make(*lines: str) -> None:
        script = tmp_path / "python"
        script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        script.chmod(0o755)
        monkeypatch.setattr("envolve.llm.gym.train.sys.executable", str(script))

    return make


def test_no_more_than_asked_for_run_at_once(tmp_path, stand_in) -> None:
    stand_in("sleep 0.1")
    jobs = [job(tmp_path, "", name=f"job{i}") for i in range(4)]
    alive: list[int] = []
    started: list[TrainingJob] = []
    for _ in run_jobs(jobs, 2, FAST, started.append):
        alive.append(len(started))
    assert len(alive) == 4 and alive[0] <= 2


def test_one_that_does_nothing_is_ended(tmp_path, stand_in, monkeypatch) -> None:
    pid, too_long = tmp_path / "pid", _Running.too_long
    stand_in(f"echo $$ > {pid}", "sleep 60")

    def once_it_runs(one: _Running, limits: Limits) -> str:
        return too_long(one, limits) if pid.exists() and pid.read_text().endswith("\n") else ""

    monkeypatch.setattr(_Running, "too_long", once_it_runs)
    ((_, outcome),) = run_jobs([job(tmp_path, "", name="idle")], 1, Limits(seconds=0.5))
    assert "it did nothing for 0.5 s: it takes too long" in str(outcome.error)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


class Machine:
    """Stands in for the clock and for the CPU time of a training: ``share`` of a core for each second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.used = 1000.0, 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=time.sleep)
        monkeypatch.setattr(train, "time", clock)
        monkeypatch.setattr(train, "session_cpu_time", lambda session: self.used)

    def looks(self, one: _Running, limits: Limits, share: float, seconds: float) -> str:
        """What is said while so many seconds pass."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            self.used += 0.1 * share
            if why := one.too_long(limits):
                return why
        return ""


def test_a_training_that_works_slowly_is_not_ended_by_the_clock(monkeypatch) -> None:
    """It gets little of a busy machine, for longer than the limit; what does nothing for so long is ended."""
    machine, limits = Machine(monkeypatch), Limits(seconds=20.0)
    one = _Running(TrainingJob(Path("x"), "train", None, 0), SimpleNamespace(pid=1), 0.0)  # type: ignore[arg-type]
    one.looked = one.woke = machine.now
    assert machine.looks(one, limits, 0.02, 100.0) == ""
    machine.used = 0.0  # a process that has ended takes its time along
    assert machine.looks(one, limits, 0.02, 100.0) == ""
    began = machine.now
    assert machine.looks(one, limits, 0.001, 100.0) == "it did nothing for 20 s: it takes too long"
    assert 10 <= machine.now - began <= 30


def test_a_training_of_many_processes_is_ended_by_their_cpu_time(tmp_path, stand_in, monkeypatch) -> None:
    stand_in("while true; do for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; done")
    monkeypatch.setattr(train, "FAR", 0.01)
    monkeypatch.setattr(train, "LOOK", 0.05)
    ((_, outcome),) = run_jobs([job(tmp_path, "", name="many")], 1, Limits(seconds=40.0))
    assert "used more than 0.4 s of CPU time" in str(outcome.error)


def test_what_a_process_wrote_is_not_believed(tmp_path) -> None:
    class Ended:
        returncode = 0

    made = job(tmp_path, "")
    out = made.folder / "out"
    out.mkdir(parents=True)

    def outcome(result: object, evals: object = None) -> JobOutcome:
        (out / "result.json").write_text(result if isinstance(result, str) else json.dumps(result))
        (out / "evals.json").write_text(json.dumps(evals))
        return _outcome(_Running(made, Ended(), 0.0), FAST, late="")  # type: ignore[arg-type]

    assert outcome({"final": {"fitness_score": 1.0}}, {"a": [1, None], "b": "x"}).curves == {"a": [1.0, None]}
    for result in (
        "",
        "[" * 100_000,
        "[]",
        {"final": 3},
        {"final": {"fitness_score": "9"}},
        '{"final": {"fitness_score": NaN}}',
    ):
        assert outcome(result).error is not None
    shown = outcome({"error": "\x1b[2Jgone\n", "kind": "reward", "notes": ["\x07"]}, {"a": [10**400]})
    assert shown.error == "?[2Jgone\n" and shown.notes == ["?"] and shown.curves == {}
    assert outcome({"error": " \n", "kind": "user"}).error == "no reason given"
    for said, kind in (("jail", "reward"), ("user", "user"), ("x", "reward"), (3, "reward")):
        assert outcome({"error": "x", "kind": said}).kind == kind  # a reward must not stop the run
    secret = tmp_path / "secret"
    secret.write_text('{"final": {"fitness_score": 1.0}}')
    (out / "result.json").unlink()
    (out / "result.json").symlink_to(secret)
    assert read_if_plain(out / "result.json", 1000) is None
    os.mkfifo(out / "pipe")
    assert (
        read_if_plain(out / "pipe", 1000) is None and read_if_plain(secret, 3) is None and read_if_plain(secret, 1000)
    )
