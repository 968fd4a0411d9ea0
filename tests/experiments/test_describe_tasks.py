"""docs/shapers.md and docs/shaped_tasks.md say what the code does."""

from __future__ import annotations

import re

from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import candidate_files, load_candidate
from envolve.experiments import describe_tasks
from envolve.outer.shapers.plan import read_schedules
from tests.outer.small import ROOT

TASKS = describe_tasks.DOCS.read_text(encoding="utf-8")
DOCS = (ROOT / "docs" / "shapers.md").read_text(encoding="utf-8")
SOURCES = ("envs/shaping/candidate.py", "envs/shaping/calls.py", "agents/shaped/training.py")


def test_the_documented_states_are_those_of_the_code():
    hint = "run: python3 experiments/describe_tasks.py --write"
    assert TASKS.partition(describe_tasks.MARK)[2].strip() == describe_tasks.sections().strip(), hint


def test_the_documented_signatures_are_those_of_the_code():
    assert re.findall(r"^\| `(compute_.*)` \|", DOCS, re.M) == describe_tasks.signatures()


def test_every_kind_of_failure_is_documented():
    kinds = set(re.findall(r"^\| (\w+) \| ", DOCS, re.M))
    sources = "".join((ROOT / p).read_text() for p in SOURCES)
    assert kinds >= set(re.findall(r'Failure\(\s*"(\w+)"', sources)) >= {"TooSlow", "NotFinite", "Diverged"}


def test_documented_files_can_be_loaded(tmp_path):
    examples = re.findall(r"```python\n(.*?)```", DOCS, re.S)
    for i, text in enumerate(examples):
        (tmp_path / f"{i}.py").write_text(text)
    assert [load_candidate(p).failure for p in candidate_files(tmp_path)] == [None, None] and len(examples) == 2
    (tmp_path / "schedule.yaml").write_text(re.search(r"```yaml\n(.*?)```", DOCS, re.S)[1])
    assert set(read_schedules(tmp_path / "schedule.yaml", physics_task("Ant"))) == {"gravity", "mass_scale"}
