"""OpenEvolve, ShinkaEvolve and GEPA themselves, where they are installed: their own loops with a scripted model, and an
evaluator over real HTTP whose training is scripted. The longer a program, the better.

    pip install openevolve gepa shinka-evolve    # tried with 0.4.1, 0.1.4 and 0.0.7
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envolve.core.places import CODE
from tests.llm import scripted_server as scripted
from tests.llm.evaluator.test_engines import load, server  # noqa: F401  a fixture

EXAMPLES = CODE / "examples" / "evaluators"
PROGRAMS = [f"# EVOLVE-BLOCK-START\n# {'good ' * k}\n# EVOLVE-BLOCK-END\n" for k in range(1, 60)]
TO_MODELS = "95 % interval 0 to 1"  # of an evaluation's feedback


def missing(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


def go(words: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CODE)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def prompts(model: scripted.ScriptedServer) -> list[str]:
    return [json.dumps(content["messages"], ensure_ascii=False) for _, _, content in model.requests]


@missing("openevolve")
def test_openevolve(server, tmp_path) -> None:  # noqa: F811
    (tmp_path / "initial.py").write_text(PROGRAMS[0])
    replies = [scripted.good(f"```python\n{program}```") for program in PROGRAMS[1:]]
    with scripted.ScriptedServer(replies) as model:
        config: dict[str, Any] = {
            "max_iterations": 4,
            "diff_based_evolution": False,
            "random_seed": 1,
            "llm": {"api_base": model.url, "api_key": "none", "models": [{"name": "scripted", "weight": 1.0}]},
            "database": {"num_islands": 1},
            "evaluator": {"parallel_evaluations": 1, "cascade_evaluation": False},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
        files = ["initial.py", str(EXAMPLES / "openevolve_evaluator.py"), "--config", "config.yaml", "--output", "out"]
        go(["-m", "openevolve.cli", *files], tmp_path)
        asked = prompts(model)
    found = json.loads((tmp_path / "out" / "best" / "best_program_info.json").read_text())["metrics"]
    assert found["combined_score"] > len(PROGRAMS[0]) + 2, "a reply is better than the first program"
    assert len(asked) == 4 and any(TO_MODELS in text for text in asked), "models are shown the evaluator's feedback"


@missing("shinka")
def test_shinka_evolve(server, tmp_path) -> None:  # noqa: F811
    task, out = tmp_path / "task", tmp_path / "out"
    task.mkdir()
    (task / "initial.py").write_text(PROGRAMS[0])
    shutil.copy(EXAMPLES / "shinka_evaluate.py", task / "evaluate.py")
    head = "<NAME>\nlonger\n</NAME>\n<DESCRIPTION>\nlonger\n</DESCRIPTION>\n"
    replies = [scripted.good(f"{head}<CODE>\n```python\n{program}```\n</CODE>") for program in PROGRAMS[1:]]
    with scripted.ScriptedServer(replies) as model:
        settings = {
            "evo.llm_models": json.dumps([f"local/scripted@{model.url}"]),
            "evo.patch_types": '["full"]',
            "evo.patch_type_probs": "[1.0]",
            "evo.embedding_model": "null",
            "evo.meta_rec_interval": "null",
            "evo.use_text_feedback": "true",
            "db.num_islands": "1",
        }
        words = ["--task-dir", str(task), "--results_dir", str(out), "--num_generations", "4"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        go(["-m", "shinka.cli.run", *words], tmp_path)
        asked = prompts(model)
    found = [json.loads(path.read_text())["combined_score"] for path in sorted(out.glob("gen_*/results/metrics.json"))]
    assert len(found) == 4 and max(found[1:]) > found[0], "a reply is better than the first program"
    assert len(asked) >= 3 and all(TO_MODELS in text for text in asked), "models are shown the evaluator's feedback"


@missing("gepa")
def test_gepa(server) -> None:  # noqa: F811
    import gepa

    replies = iter(f"```\n{'good ' * k}\n```" for k in range(2, 50))
    result = gepa.optimize(
        seed_candidate={"code": "good"},
        trainset=[{}],
        valset=[{}],
        adapter=load("gepa_adapter").ShaperAdapter(),
        reflection_lm=lambda prompt: next(replies),
        max_metric_calls=12,
        reflection_minibatch_size=1,
        display_progress_bar=False,
        skip_perfect_score=False,  # scores of 1 are not the best here
    )
    assert result.val_aggregate_scores[result.best_idx] > result.val_aggregate_scores[0]
