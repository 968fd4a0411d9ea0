"""A ranking in slices: any cut gives the bytes of one simulator."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rich.console import Console

from envolve.experiments import eval_shapers
from envolve.outer.shapers import slices
from envolve.outer.shapers.arguments import Args
from envolve.outer.shapers.plan import make_plan
from envolve.outer.shapers.run import ShaperRun
from envolve.outer.shapers.slices import cut, given_up, slice_of, together
from tests.experiments.test_eval_shapers import FILES

BROKEN = {**FILES, "syntax": "def compute_reward(state:\n", "helped": "from pathlib import Path\n"
          "UP = float((Path(__file__).parent / '_number.txt').read_text())\n"
          "def compute_reward(state):\n    return UP * state['pole_angle'].cos()\n"}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("shapers")
    for name, text in BROKEN.items():
        (path / f"{name}.py").write_text(text)
    (path / "_number.txt").write_text("3.0")
    return path


def plan_of(folder, out, **changed):
    own = {"iterations": 2, "seeds": 2, "threads": 1, "set": ["hidden_size=16", "ppo_epochs=1"], **changed}
    return make_plan(Args(task="Cartpole", num_envs_per_shaper=8, shapers=folder, out=out, **own))


class ByParts(ShaperRun):
    """Trains the parts one after the other, in a folder of their own, in any order."""

    def __init__(self, plan, parts, elsewhere, lost=()):
        super().__init__(plan)
        self.parts, self.elsewhere, self.lost = parts, elsewhere, lost

    def execute(self, console):
        files = slices.files_of(self.plan)
        content, done = slices.content_of(self.plan, files), []
        slices.unpacked(content, files, self.elsewhere)
        for number, agents in reversed(list(enumerate(self.parts))):
            if number in self.lost:
                done.append(given_up(agents, "five workers died"))
            else:
                done.append(slice_of(slices.train(content, self.elsewhere, agents, 1), agents))
        P = len(self.plan.candidates) * self.plan.K
        self.result, self.envs = together(P, self.plan.N, done)
        self.curve, self.complete = self.result.curve, True


def outcome(run):
    """Everything of candidates.json about the candidates, and the stored policy."""
    run.execute(Console(quiet=True))
    run.write(None)
    text = (run.plan.out / "candidates.json").read_text()
    return text.partition('"candidates": [\n')[2], (run.plan.out / "best.pt").read_bytes()


def test_any_cut_gives_the_bytes_of_one_simulator(folder, tmp_path, monkeypatch):
    """Also of candidates that fail, with their tracebacks, and of one that reads a file beside it; the folder is given
    as a relative path."""
    monkeypatch.chdir(folder.parent)
    given = folder.relative_to(folder.parent)
    whole = outcome(ShaperRun(plan_of(given, tmp_path / "whole")))
    assert whole[0].count('"failed": true') == 3 and "pole_angel" in whole[0] and "SyntaxError" in whole[0]
    P = 2 * (len(BROKEN) + 1)
    (tmp_path / "node").mkdir()
    parts = [range(0, 1), range(1, 2), range(2, 7), range(7, P)]  # one candidate's agents apart, and others across
    assert outcome(ByParts(plan_of(given, tmp_path / "parts"), parts, tmp_path / "node")) == whole


def test_a_slice_that_was_given_up_fails_its_candidates_alone(folder, tmp_path):
    plan = plan_of(folder, tmp_path / "out", candidates=["good", "wide"], seeds=1)
    (tmp_path / "node").mkdir()
    run = ByParts(plan, [range(0, 1), range(1, 3)], tmp_path / "node", lost=(0,))
    outcome(run)
    found = {c["name"]: c for c in json.loads((tmp_path / "out/candidates.json").read_text())["candidates"]}
    assert found["human"]["failed"] and found["human"]["kind"] == slices.LOST
    assert found["good"]["score"] and found["wide"]["score"]
    lost, _ = together(3, 8, [given_up(range(3), "why")])
    assert np.isnan(lost.score).all() and not lost.curve


def test_where_bits_depend_on_the_others_there_is_one_slice(folder, tmp_path):
    p = plan_of(folder, tmp_path)
    P = len(p.candidates) * p.K
    for slots in (0, 1, 3, 100):
        parts = cut(p, slots)
        assert [a for part in parts for a in part] == list(range(P))
        assert len(parts) == min(P, max(2, 2 * slots)) and max(map(len, parts)) - min(map(len, parts)) <= 1
    for changed in ({"learner": "sac"}, {"engine": "mujoco_warp"}, {"device": "cuda:0"}, {"backend": "torch"}):
        assert cut(p._replace(**changed), 7) == [range(P)], changed


def test_other_files_than_the_plan_names_are_not_executed(folder, tmp_path):
    p = plan_of(folder, tmp_path / "out")
    files = slices.files_of(p)
    assert set(files) == {*(f"{name}.py" for name in BROKEN), "_number.txt"}
    content = slices.content_of(p, files)
    with pytest.raises(ValueError, match=r"good\.py: these are not the bytes"):
        slices.unpacked(content, {**files, "good.py": b"import os"}, tmp_path)
    content["files"]["../up.py"] = content["files"].pop("good.py")
    with pytest.raises(ValueError, match=r"up\.py: these are not the bytes"):
        slices.unpacked(content, {**files, "../up.py": files["good.py"]}, tmp_path)
    assert not (tmp_path / "good.py").exists() and not (tmp_path.parent / "up.py").exists()


@pytest.mark.parametrize(
    "words, text",
    [
        (["--workers-on", "files"], "--workers-on: found 'files', expected here, ray, ray:auto or ray:HOST:PORT"),
        (["--workers", "2"], "--workers: found it with --workers-on here, expected --workers-on ray or ray:ADDRESS"),
        (["--workers-on", "ray", "--video", "x.gif"], "--video: found it with --workers-on ray, expected"),
        (["--workers-on", "ray", "--workers", "0"], "--workers: found 0, expected at least 1"),
    ],
)
def test_wrong_flags_are_one_line(words, text, capsys, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("envolve.outer.ray.address.installed", lambda: True)
    code = eval_shapers.main(["--task", "Cartpole", "--shapers", str(folder), "--run-dir", str(tmp_path / "o"), *words])
    err = capsys.readouterr().err
    assert code == 2 and text in err and err.count("\n") == 1 and not (tmp_path / "o").exists()


def test_no_ray_is_one_line(capsys, folder, monkeypatch):
    monkeypatch.setattr("envolve.outer.ray.address.installed", lambda: False)
    assert eval_shapers.main(["--task", "Cartpole", "--shapers", str(folder), "--workers-on", "ray"]) == 2
    assert "found no package ray, which ray needs; pip install 'envolve[ray]'" in capsys.readouterr().err


def test_dumps_travel(folder, tmp_path):
    result, _ = together(2, 8, [given_up(range(2), "")])
    result.curve = []
    data = slices._encoded(result, {}, [("good", "good_dump.npz", b"\x00\x01")])
    (dump,) = slice_of(data, range(2)).dumps
    assert (dump.candidate, dump.file_name(), dump.content()) == ("good", "good_dump.npz", b"\x00\x01")
