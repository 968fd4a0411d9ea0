"""controls.py and tuned_baseline.py as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.file import save_world
from envolve.envs.worlds.world import init_world
from envolve.experiments import controls
from envolve.outer.config.load import load_config
from envolve.outer.config.problem import env_section
from envolve.outer.controls.baseline import FOLDER, baseline_of, read_baseline
from envolve.outer.distil import bandit, fit
from tests.experiments.command import exit_code
from tests.outer.reporting.events import scalars

ROOT = Path(__file__).parents[2]


def world_of(config: str, path: Path, evolution_steps: int | None = 700) -> Path:
    data = load_config(ROOT / config).data
    name, section = data["env_name"], env_section(data)
    kind = "rn" if data["agents"]["gtn"]["synthetic_env_type"] else "se"
    flat = init_world(kind, make_task(name), EnvSection(**vars(section)), torch.tensor([3]))[0]
    save_world(str(path), kind, name, flat, data, budget=30 if kind == "se" else 0, evolution_steps=evolution_steps)
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fit takes more than 20 steps."""
    monkeypatch.setattr(fit.minimise, "__defaults__", (20,))
    monkeypatch.setattr(bandit, "CONTEXT_STEPS", 20)
    monkeypatch.setattr(bandit, "STEPS", 20)


@pytest.mark.usefixtures("quick")
def test_a_bandit_beside_its_controls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = world_of("default_config_cartpole_contextual_bandit.yaml", tmp_path / "model.pt"), tmp_path / "c.json"
    names = ["world", "greedy", "classifier", "hand_made", "potential", "direct"]
    words = [str(model), "--agents", "2", "--repeats", "2", "--episodes", "3", "--threads", "1", "--json", str(out)]
    assert controls.main([*words, "--only", *names]) == 0
    rows = {row["name"]: row for row in json.loads(out.read_text())["rows"]}
    assert list(rows) == ["world", "greedy", "classifier", "hand_made", "hand_made bandit", "potential", "direct"]
    assert rows["world"]["real_steps"] == 700 and len(rows["world"]["returns"]) == 2
    assert rows["hand_made"]["mean_return"] > 190 and rows["hand_made"]["real_steps"] == 0
    assert rows["hand_made bandit"]["worlds"] == [0, 1]
    assert rows["direct"]["real_steps"] >= 700 and rows["direct"]["unit"] == "policy"
    assert "finite tasks" in rows["potential"]["why_not"]
    shown = capsys.readouterr().out
    assert all(name in shown for name in rows) and "no potential: only reward networks of finite tasks" in shown


@pytest.mark.usefixtures("quick")
def test_a_reward_network_beside_its_controls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = world_of("default_config_gridworld_reward_env.yaml", tmp_path / "model.pt", None)
    words = [str(model), "--agents", "2", "--repeats", "1", "--episodes", "1", "--threads", "1"]
    words += ["--tensorboard", str(tmp_path / "events")]
    assert controls.main([*words, "--only", "tuned", "greedy", "distilled", "potential", "direct"]) == 0
    shown = capsys.readouterr().out
    rows = {p.name: scalars(p) for p in (tmp_path / "events").iterdir()}
    assert {"tuned", "greedy"} <= set(rows) and "distilled" not in rows, "the rows that were made"
    assert [step for step, _ in rows["tuned"]["return"]] == [0, 1]
    assert "V* by value iteration" in shown and "no distilled: it stands beside SEs" in shown
    assert "give --real-steps" in shown  # its file does not say what evolution took


@pytest.mark.parametrize(("words", "said"), [
    (["nowhere.pt"], "nowhere.pt"),
    (["{world}", "--agents", "0"], "--agents: found 0, expected at least 1"),
    (["{world}", "--only", "greddy"], "nearest: 'greedy'"),
    (["{world}", "--json", "/no/such/folder/c.json"], "--json"),
])  # fmt: skip
def test_bad_arguments_are_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = world_of("default_config_cartpole_contextual_bandit.yaml", tmp_path / "model.pt")
    assert exit_code(controls.main, [word.replace("{world}", str(model)) for word in words]) in (1, 2)
    shown = capsys.readouterr().err
    assert said in shown and len(shown.splitlines()) == 1


def test_every_baseline_that_ships_can_be_read() -> None:
    for path in FOLDER.glob("*.yaml"):
        found = read_baseline(path)
        assert found.tuning_steps > 0 and (ROOT / found.record["study"]).is_file()
        again = baseline_of(found.config.data["env_name"])
        assert again is not None and again.config.data == found.config.data
