"""step.py and env.py: a difference is told, another call of the reward is an error; and the complete example."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

from envolve.llm.gym.agree import disagreement
from envolve.llm.gym.allowlist import check_method
from envolve.llm.gym.config import load_gym_config
from envolve.llm.gym.evolution import run_config
from envolve.llm.gym.reward import extract_method, step_call
from envolve.llm.gym.setup import GymOptions, UserEnv, check_agreement, find_env
from envolve.llm.vetting.jail import locks as jail
from envolve.llm.vetting.text.parsing import VetError
from envolve.outer.config.yaml_lines import ConfigError
from tests.llm.gym.user import GOOD, write_config, write_user_env
from tests.test_layout import ROOT

EXAMPLE = ROOT / "examples" / "user_environment"
STEP = """def step(self, action: int) -> tuple:
    # a comment
    x = self.x + action

    reward, parts = self.compute_reward(x, action)
    return x, reward, False, False, parts
"""


def env(step: str, name: str = "E") -> str:
    return f"class Base:\n    pass\n\n\nclass {name}(Base):\n" + "".join(
        f"    {line}\n" if line else "\n" for line in step.splitlines()
    )


@pytest.mark.parametrize(
    "own, error, warning",
    [
        (STEP, "", ""),
        (STEP.replace(": int) -> tuple", ")").replace("    # a comment\n", '    """Words."""\n'), "", ""),
        (STEP.replace("+ action\n", "- action\n"), "", "it has 'x = self.x + action', env.py 'x = self.x - action'"),
        (STEP.replace("    return", "    y = 1\n    return"), "", "env.py 'y = 1'"),
        (STEP + "    print(1)\n", "", "'print(1)' of env.py is not in step.py"),
        (STEP.replace("(x, action)", "(x)"), "but env.py calls it with (x)", ""),
        (STEP.replace("self.compute_reward(x, action)", "0.0, {}"), "E.step of env.py never calls", ""),
    ],
)
def test_differences(own: str, error: str, warning: str) -> None:
    found = disagreement(env(own), "E", STEP)
    assert error in found[0] and bool(found[0]) == bool(error), found
    assert warning in found[1] and bool(found[1]) == bool(warning), found


def test_what_cannot_be_compared() -> None:
    assert disagreement(env(STEP, "Other"), "E", STEP) == ("", "")
    assert disagreement("class E(", "E", STEP) == ("", "")
    assert "no Python" in disagreement(env(STEP), "E", "reward = self.compute_reward(x, action")[1]
    assert "no def step" in disagreement(env(STEP), "E", "reward = self.compute_reward(x, action)")[1]


def test_shipped_environments_agree(caplog) -> None:
    names = {p.parent.name for p in (ROOT / "envs").glob("*/step.py")}
    for path in [*(ROOT / "configs").glob("*.yml"), EXAMPLE / "target.yml"]:
        config = load_gym_config(path, [])
        found = find_env(config.environment.name, [ROOT / "envs", EXAMPLE / "envs"])
        check_agreement(found, config.environment.class_name)
        names.discard(found.folder.name)
    assert not names and not caplog.records


def test_a_run_says_it_before_anything_is_asked(tmp_path: Path, caplog) -> None:
    folder = write_user_env(tmp_path)
    config = write_config(tmp_path, [GOOD])
    (folder / "step.py").write_text("def step(self, action):\n    r, p = self.compute_reward(self.x, action, 1)\n")
    with caplog.at_level(logging.ERROR):
        assert run_config(config) == 2
    assert (
        "step.py calls self.compute_reward(self.x, action, 1), but env.py calls it with (self.x, action)" in caplog.text
    )
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ConfigError):
        check_agreement(UserEnv(folder, (folder / "step.py").read_text(), "", None), "Walk")


def test_the_examples_replies_are_what_their_comments_say() -> None:
    call = step_call((EXAMPLE / "envs" / "target" / "step.py").read_text())
    for line in (EXAMPLE / "replies.jsonl").read_text().splitlines():
        entry = json.loads(line)
        try:
            check_method(extract_method(entry["reply"]), call)
            assert not entry["comment"].startswith("broken")
        except VetError:
            assert entry["comment"].startswith("broken")


@pytest.mark.slow
@pytest.mark.skipif(bool(jail.missing()), reason=f"this kernel cannot jail: no {', no '.join(jail.missing())}")
def test_the_example_runs(tmp_path: Path, monkeypatch) -> None:
    """As docs/gym_envs.md says, with fewer steps."""
    monkeypatch.chdir(ROOT)
    small = ("rl.training.total_timesteps=2048", "rl.training.eval.num_evals=2", "eureka.final_seeds=2",
             "eureka.finalists=2", "rl.evaluation.num_episodes=2")  # fmt: skip
    options = GymOptions(set=small, results_dir=tmp_path, json=tmp_path / "out.json", processes=2, seconds=300.0)
    assert run_config(EXAMPLE / "target.yml", options) == 0
    result = json.loads((tmp_path / "out.json").read_text())
    assert [s["stage"] for s in result["samples"]] == ["", "", "allowlist", ""] and len(result["finals"]) == 2
    assert 0 <= result["best"]["score"] <= 1
    assert (Path(result["folder"]) / "eval.gif").read_bytes()[:3] == b"GIF"
