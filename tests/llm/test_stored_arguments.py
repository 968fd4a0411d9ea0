"""Arguments that a resumed run reads from its config.yaml: what no flag could have given is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from envolve.llm.arguments import Args
from envolve.llm.plan import arguments, stored_args
from envolve.outer.config.yaml_lines import ConfigError

SOUND = replace(Args(), task="Cartpole", llm=["m"], novelty=0.5, set=["lr=0.1"], price=["m=1,2"])
WRONG = {
    "task": [5, None],
    "num_iters": [2.5, None, True, "5", [1]],
    "temperature": ["hot", None, False],
    "novelty": ["x", [0.5]],
    "seed": [1.5, "0"],
    "notes": ["yes", 1, None],
    "allow_unprotected": ["no", 1],
    "mode": ["greeedy", 5, None, ["greedy"]],
    "learner": ["xyz"],
    "engine": ["q"],
    "llm": ["gpt-4o", [5], None],
    "shaper_types": [5, None, {}],
    "set": [5, [5]],
    "base_url": [5],
    "results_dir": [5],
    "budget_tokens": [1.5],
}


def stored(folder, **changes):
    content = {**arguments(SOUND), **changes}
    (folder / "config.yaml").write_text(yaml.safe_dump({"arguments": content}))
    return stored_args(replace(Args(), resume=folder))


def test_what_a_run_stores_is_read_again(tmp_path) -> None:
    assert stored(tmp_path) == replace(SOUND, resume=tmp_path)
    assert stored(tmp_path, temperature=1, seed=3, results_dir="r", timeout=5).seed == 3


@pytest.mark.parametrize("name, value", [(name, value) for name, values in WRONG.items() for value in values])
def test_values_that_no_flag_gives(tmp_path, name, value) -> None:
    """Once "no" allowed unprotected code, and an unknown mode meant islands."""
    with pytest.raises(ConfigError, match=rf"config.yaml: arguments.{name}: found .*, expected ") as error:
        stored(tmp_path, **{name: value})
    assert name != "mode" or "greedy, islands, elites" in str(error.value)
