"""examples/evaluators/: the files that OpenEvolve, ShinkaEvolve and GEPA call, with an evaluator over real HTTP whose
training is scripted. The engines themselves: test_real_engines.py."""

from __future__ import annotations

import importlib.util
import json
import threading

import pytest

from envolve.core.places import CODE
from envolve.llm.evaluator.web import Server
from tests.llm.evaluator.test_evaluator import make


@pytest.fixture
def server(tmp_path, monkeypatch):
    evaluator = make(tmp_path / "store")
    with Server(evaluator, "secret") as found:
        found.begin()
        threading.Thread(target=evaluator.work, daemon=True).start()
        monkeypatch.setenv("ENVOLVE_EVALUATOR", found.url)
        monkeypatch.setenv("ENVOLVE_EVALUATOR_TOKEN", "secret")
        yield found
        evaluator.stop()
        found.shutdown()


def load(name: str):
    path = CODE / "examples" / "evaluators" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_openevolve(server, tmp_path) -> None:
    module, program = load("openevolve_evaluator"), tmp_path / "program.py"
    program.write_text("good program")
    found = module.evaluate(str(program))
    metrics = found if isinstance(found, dict) else found.metrics
    assert metrics == {"combined_score": 14.0, "scored": 1.0}
    program.write_text("bad")
    found = module.evaluate(str(program))
    assert (found if isinstance(found, dict) else found.metrics)["combined_score"] == module.WORST


def test_shinka(server, tmp_path) -> None:
    module, program = load("shinka_evaluate"), tmp_path / "program.py"
    for text, correct in (("good program", True), ("bad", False), ("boom", False)):
        program.write_text(text)
        metrics = module.main(str(program), str(tmp_path / text))
        assert metrics == json.loads((tmp_path / text / "metrics.json").read_text())
        told = json.loads((tmp_path / text / "correct.json").read_text())
        assert told["correct"] is correct and (told["error"] is None) is correct
        assert metrics["combined_score"] == (14.0 if correct else module.WORST) and metrics["text_feedback"]


def test_gepa_adapter(server) -> None:
    module = load("gepa_adapter")
    adapter = module.ShaperAdapter()
    batch = adapter.evaluate([{}, {}], {"code": "```python\ngood\n```"}, capture_traces=True)
    assert batch.scores == [7.0, 7.0] and len(batch.outputs) == len(batch.trajectories) == 2
    shown = adapter.make_reflective_dataset({"code": "good"}, batch, ["code"])
    assert "score" in shown["code"][0]["Feedback"]
    assert server.evaluator.trained == 1  # the same code is trained once
    assert adapter.evaluate([{}], {"code": "bad"}).scores == [module.WORST]
