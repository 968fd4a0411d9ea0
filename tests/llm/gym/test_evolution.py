"""A whole run on a user's environment from a recording: no key, no network."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

from envolve.experiments.pages import KINDS
from envolve.llm.arguments import Args
from envolve.llm.gym.config import load_gym_config
from envolve.llm.gym.evolution import resume_command, run_config
from envolve.llm.gym.prompts import GymBrief
from envolve.llm.gym.reward import StepCall
from envolve.llm.gym.sample import Sample
from envolve.llm.gym.setup import GymOptions, checked_benchmark
from envolve.llm.gym.train import JobOutcome
from envolve.llm.models.ledger import Budget
from envolve.llm.models.prices import Price
from envolve.llm.plan import stored_args
from envolve.llm.vetting.jail import locks as jail
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.page.kinds import read_page
from tests.llm import scripted_server as scripted
from tests.llm.gym.user import GOOD, method, write_config, write_user_env

jailed = pytest.mark.skipif(bool(jail.missing()), reason=f"this kernel cannot jail: no {', no '.join(jail.missing())}")
NAN = f"```python\n{method('return np.log(-1.0), {}')}```"


def finished(folder: Path, replies: list[str], iterations: int = 1, **options: object) -> tuple[int, dict, Path]:
    """-> exit code, the result, the run's folder."""
    if not (folder / "envs").exists():
        write_user_env(folder)
    config = write_config(folder, replies, iterations)
    result = folder / "result.json"
    code = run_config(config, GymOptions(json=result, processes=2, seconds=120.0, **options))  # type: ignore[arg-type]
    return code, json.loads(result.read_text()) if result.exists() else {}, folder / "runs" / "walk"


@jailed
@pytest.mark.slow
def test_a_recorded_run_from_reply_to_picture(tmp_path, caplog, capsys) -> None:
    with caplog.at_level(logging.WARNING):
        code, result, folder = finished(tmp_path, [GOOD, NAN, "I cannot."])
    assert code == 0 and "Best: iteration 0 sample 0" in capsys.readouterr().out.replace("\n", " ")
    assert result["best"]["number"] == 0 and isinstance(result["best"]["score"], float)
    stages = [s["stage"] for s in result["samples"]]
    assert stages == ["", "reward", "extract"] and "the total reward is nan" in result["samples"][1]["failure"]
    assert "no CUDA GPU" in caplog.text and "torch_compile" in caplog.text
    for name in (
        "best_reward.json",
        "best_reward.py",
        "best_iteration_rewards.json",
        "eval.json",
        "fitness.png",
        "iteration_0.md",
        "calls.jsonl",
        "result.json",
        "config.json",
    ):
        assert (folder / name).stat().st_size > 0, name
    assert (folder / "eval.gif").read_bytes()[:3] == b"GIF"
    sample = folder / "code" / "iteration_0" / "sample_0"
    curves = json.loads((sample / "evals.json").read_text())
    assert set(curves) == {"timesteps", "reward", "episode_length", "forward", "fitness_score"}
    assert curves["reward"] == pytest.approx(curves["forward"]) and curves["episode_length"] == [10.0, 10.0]
    assert (sample / "model.zip").is_file() and list(sample.glob("out/tensorboard_1/events*"))
    page = read_page(folder, KINDS)  # envolve report
    assert page.problems == [] and page.state == "complete" and page.verdict.startswith("The best of 3 rewards reaches")


def test_wrong_arguments_cost_nothing(tmp_path, caplog) -> None:
    write_user_env(tmp_path)
    config = write_config(tmp_path, [GOOD])
    with caplog.at_level(logging.ERROR):
        assert run_config(tmp_path / "none.yml") == 2
        assert run_config(config, GymOptions(set=("environment.name=wolk",))) == 2
        assert run_config(config, GymOptions(llm="replay:nowhere.jsonl")) == 2
        assert run_config(config, GymOptions(resume=tmp_path)) == 2
        (tmp_path / "envs" / "walk" / "task_description.txt").write_text(" ")
        assert run_config(config) == 2
    for text in ("did you mean", "did you mean walk", "nowhere.jsonl", "found no config.json", "found no text"):
        assert text in caplog.text, text
    assert not list((tmp_path / "runs").glob("walk/*/code"))


def test_the_command_to_go_on_has_what_was_limited_and_nothing_else(tmp_path, caplog) -> None:
    options = GymOptions(
        llm="m", budget=Budget(5.0, 1000), max_tokens=8192, prices={"m": Price(1, 2.5)}, memory=2**30, seconds=1800.0,
        processes=3, parallel=2, timeout=9.0, set=("eureka.samples=2",),
    )  # fmt: skip
    folder = tmp_path / "run"
    words = shlex.split(resume_command(Path("c.yml"), options, folder))
    assert " ".join(words[words.index("--config") :]) == (
        f"--config c.yml --resume {folder} --llm m --max-tokens 8192 --parallel 2 --timeout 9 --processes 3 "
        "--budget-usd 5 --budget-tokens 1000 --memory 1 --hours 0.5 --price m=1,2.5 --set eureka.samples=2"
    )
    usual = shlex.split(resume_command(Path("c.yml"), GymOptions(), folder))
    assert usual[-4:] == ["--config", "c.yml", "--resume", str(folder)]
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="add --config FILE"):
        stored_args(Args(resume=folder))


def test_old_names_of_gymnasium_are_renewed(tmp_path, caplog) -> None:
    path = write_config(tmp_path, [GOOD])
    old = load_gym_config(path, ["environment.benchmark=LunarLander-v2"])
    with caplog.at_level(logging.WARNING):
        assert checked_benchmark(old).environment.benchmark == "LunarLander-v3" and "LunarLander-v2" in caplog.text
    with pytest.raises(ConfigError, match="did you mean CartPole-v1"):
        checked_benchmark(load_gym_config(path, ["environment.benchmark=CartPool-v1"]))


def test_what_is_missing_leaves_no_folder(tmp_path, caplog, monkeypatch) -> None:
    """A key of a server, with the variable that might be meant; a key of the file, with the one that is there."""
    write_user_env(tmp_path)
    config = write_config(tmp_path, [GOOD])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPEN_AI_KEY", "sk-not-to-be-seen")
    with caplog.at_level(logging.ERROR):
        assert run_config(config, GymOptions(llm="gpt-4o")) == 2
        config.write_text(config.read_text().replace("total_timesteps", "total_timestep"))
        assert run_config(config) == 2
    assert "set the environment variable OPENAI_API_KEY" in caplog.text and "OPEN_AI_KEY" in caplog.text
    assert "did you mean total_timesteps" in caplog.text and "sk-not-to-be-seen" not in caplog.text
    assert not (tmp_path / "runs").exists()


@jailed
def test_failed_calls_are_asked_again(tmp_path, caplog, monkeypatch) -> None:
    """The run stops, says why and how to go on; resumed, it asks and trains what is missing and ends as another one."""
    monkeypatch.setattr("envolve.llm.models.attempts.FIRST_WAIT", 0.0)
    trained: list[str] = []

    def train(jobs, parallel, limits):
        for job in jobs:
            trained.append(job.folder.name)
            yield job, JobOutcome(final={"fitness_score": float(len(job.code))})

    monkeypatch.setattr("envolve.llm.gym.trainings.run_jobs", train)
    failing, answered, seeds = {}, [], set()

    def script(content):
        seeds.add(content["seed"])
        replies = json.dumps(content["messages"]).count("forward0") * 2  # the second iteration shows the first's best
        number = replies + len([n for n in answered if n >= replies])
        if number in failing:
            return failing[number]
        answered.append(number)
        return scripted.good(GOOD.replace("forward", f"forward{replies}" + "x" * number))

    with scripted.ScriptedServer(script) as server:
        options = {"llm": "m", "base_url": server.url, "parallel": 1}
        _, whole, _ = finished(tmp_path / "whole", [GOOD] * 4, 2, **options)
        answered.clear()
        trained.clear()
        failing[3] = scripted.error(403, "no longer yours")
        with caplog.at_level(logging.ERROR):
            code, _, folder = finished(tmp_path / "cut", [GOOD] * 4, 2, **options)
        [line] = [r.getMessage() for r in caplog.records if "403" in r.getMessage()]
        assert code == 1 and "1 of 2 calls are answered and kept" in line and f"--resume {folder}" in line
        assert trained == ["check", "sample_0", "sample_1"]
        failing.clear()
        code, result, _ = finished(tmp_path / "cut", [GOOD] * 4, 2, resume=folder, **options)
    assert code == 0 and sorted(answered) == [0, 1, 2, 3] == sorted(seeds)  # every request has a seed of its own
    assert [s["score"] for s in result["samples"]] == [s["score"] for s in whole["samples"]]
    assert trained == ["check", "sample_0", "sample_1", "check", "sample_0", "sample_1"]


@jailed
def test_finalists_are_trained_anew_and_copies_are_not(tmp_path, monkeypatch) -> None:
    """The winner of the search was lucky; the last test finds the better one. Resumed, it trains nothing again."""
    trained: list[str] = []

    def train(jobs, parallel, limits):
        for job in jobs:
            trained.append(str(job.folder.relative_to(tmp_path / "runs" / "walk")))
            luck = {"finals": 0.0}.get(trained[-1].split("/")[0], 100.0 * ("lucky" in (job.code or "")))
            yield job, JobOutcome(final={"fitness_score": luck + len(job.code or "") + job.seed % 7 / 10})

    monkeypatch.setattr("envolve.llm.gym.trainings.run_jobs", train)
    lucky = GOOD.replace("forward", "lucky")
    copy = GOOD.replace("(self, x, action):", '(self, x: float, action) -> tuple:\n    """Forward."""  # again')
    replies = [lucky, GOOD.replace("forward", "forwards"), GOOD, copy]
    sets = ("eureka.final_seeds=3", "eureka.finalists=2")
    code, result, folder = finished(tmp_path, replies, set=sets)
    assert code == 0
    assert [s["stage"] for s in result["samples"]] == ["", "", "", "novelty"]
    assert "it is the reward of iteration 0 sample 2; write one" in result["samples"][3]["failure"]
    finals = result["finals"]
    assert [(f["number"], len(f["scores"])) for f in finals] == [(1, 3), (0, 3)]
    assert finals[0]["score"] > finals[1]["score"] and finals[0]["selected_with"] < finals[1]["selected_with"]
    assert result["best"]["number"] == 1 and result["best"]["score"] == finals[0]["score"]
    assert finals[0]["interval"][0] <= finals[0]["score"] <= finals[0]["interval"][1]
    assert len({name for name in trained if name.startswith("finals")}) == 6
    assert "forwards" in (folder / "best_reward.py").read_text()
    trained.clear()
    code, again, _ = finished(tmp_path, replies, set=sets, resume=folder)
    assert code == 0 and again["finals"] == finals and trained == ["check"]


def brief() -> GymBrief:
    return GymBrief("Walk.", "def step(self, action): ...", StepCall(("self.x", "action")), "initial text")


def test_prompts_show_the_best_and_the_failures(tmp_path) -> None:
    first = brief().messages(None, [])
    assert "initial text" in first[1][1] and "def compute_reward(self, x0, action)" in first[1][1]
    best = Sample(0, 0, tmp_path, code="BEST = 1", fitness=2.5, episodes=3)
    best.curves = {"timesteps": [1.0, 2.0, 3.0], "fitness_score": [1.0, 3.0, 2.5], "a": [0.0, None, 4.0]}
    failed = Sample(1, 1, tmp_path, code="BAD = 1", failure="NameError: ouch", stage="reward")
    text = brief().messages(best, [failed, Sample(1, 2, tmp_path, failure="NameError: ouch")])[1][1]
    assert "fitness_score: [1, 3, 2.5]. Max: 3 - Mean: 2.167 - Min: 1" in text
    assert "a: [0, 4]. Max: 4" in text and "timesteps" not in text
    assert "BEST = 1" in text and text.count("NameError: ouch") == 1 and "BAD = 1" not in text
    nothing = brief().messages(None, [failed])[1][1]
    assert "BAD = 1" in nothing and "mend it" in nothing
    assert len(brief().messages(best, [failed] * 50)[1][1]) < 40_000


@jailed
@pytest.mark.slow
def test_resume_benchmark_and_pretraining(tmp_path, caplog, capsys) -> None:
    """The first session is broken off after an iteration; the second trains only what is missing. Then a replay."""
    write_user_env(tmp_path)
    worse = GOOD.replace("float(x[0])", "-float(x[0])")
    sets = ("eureka.pretraining_with_best_model=true", "environment.benchmark=Pendulum-v1")
    calls = []
    import envolve.llm.gym.trainings as trainings

    real = trainings.run_jobs

    def counted(jobs, *rest):
        calls.append([(j.mode, str(j.folder.relative_to(tmp_path / "runs" / "walk"))) for j in jobs])
        if len(calls) == 3:
            raise KeyboardInterrupt
        yield from real(jobs, *rest)

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(trainings, "run_jobs", counted)
        code, _, folder = finished(tmp_path, [GOOD, worse, worse, GOOD], 2, set=sets)
        assert code == 130 and f"--resume {folder}" in (said := capsys.readouterr().err)
        assert said.strip().endswith("--set " + " ".join(sets))  # with which it alone goes on
        before = (folder / "code/iteration_0/sample_0/out/result.json").stat().st_mtime_ns
        calls.append([])
        code, result, _ = finished(tmp_path, [GOOD, worse, worse, GOOD], 2, set=sets, resume=folder)
    assert code == 0
    trained = [name for jobs in calls[4:] for mode, name in jobs if mode == "train"]
    assert trained == ["code/iteration_1/sample_0", "code/iteration_1/sample_1"]
    assert (folder / "code/iteration_0/sample_0/out/result.json").stat().st_mtime_ns == before
    assert result["benchmark"]["score"] < -10
    job = json.loads((folder / "code/iteration_1/sample_1/job.json").read_text())
    assert job["warm_start"].endswith("iteration_0/sample_0/model.zip")
    # the finished run again, from its own record: the same requests, the same trainings, the same figures
    code, again, _ = finished(tmp_path, [GOOD] * 4, 2, set=sets, llm=f"replay:{folder / 'calls.jsonl'}")
    assert code == 0 and again["folder"] != result["folder"]
    for one, other in zip(again["samples"], result["samples"]):
        assert one["final"] == other["final"] and one["score"] == other["score"]


@jailed
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mountain_car_continuous", "lunar_lander", "bipedal_walker"])
def test_shipped_environments_run_from_their_recordings(tmp_path, name, request) -> None:
    if name != "mountain_car_continuous":
        pytest.importorskip("Box2D")
    from tests.test_layout import ROOT

    quick = ("eureka.iterations=1", "eureka.samples=3", "rl.training.total_timesteps=512", "rl.algo_params.n_steps=64",
             "rl.training.eval.num_evals=2", "rl.evaluation.num_episodes=1", "rl.training.num_envs=2",
             "eureka.finalists=1", "eureka.final_seeds=2")  # fmt: skip
    out = tmp_path / "out.json"
    options = GymOptions(
        llm=f"replay:{ROOT}/configs/recordings/{name}.jsonl",
        results_dir=tmp_path / "results",
        json=out,
        set=quick,
        processes=2,
    )
    assert run_config(ROOT / "configs" / f"{name}.yml", options) == 0
    result = json.loads(out.read_text())
    assert result["benchmark"]["score"] is not None and result["best"]["score"] is not None
    assert (Path(result["folder"]) / "eval.gif").read_bytes()[:3] == b"GIF"
