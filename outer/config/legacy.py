"""Names in the original's YAML files (github.com/automl/learning_environments) without a meaning here, and the reasons.

A file written for the original loads as it is: these names become warnings, any other unknown name is an error.
"""

from __future__ import annotations

from typing import Dict

_WALL_CLOCK = "wall-clock limits made results depend on the machine's load; train_steps is the budget here"
_SLEEP = "master and workers here wait for each other without fixed sleeps"
_UNREAD = "the original's last version no longer read it either"
_PRINT = "a progress table and results/<run_id>/ take its place"
_RENDER = "nothing is rendered while agents train"

# Kind of section -> key -> why it is ignored. A key that a section declares is never ignored.
LEGACY_KEYS: Dict[str, Dict[str, str]] = {
    "run": {"render_env": _RENDER, "export_path": "results go to --results-dir"},
    "gtn": {
        "time_mult": _WALL_CLOCK,
        "time_max": _WALL_CLOCK,
        "time_sleep_master": _SLEEP,
        "time_sleep_worker": _SLEEP,
        "num_test_envs": _UNREAD,
        "exploration_gain": _UNREAD,
        "minimize_score": _UNREAD,
        "print_rate": _PRINT,
    },
    "expert": {},
    "learner": {"print_rate": _PRINT, "render_env": _RENDER, "sigmoid_last_layer": _UNREAD},
    "icm": {},
    "vary": {},
    "search": {},
    "env": {"render_env": _RENDER},
    "study": {},
}

# Agents, baselines and tools of the original; a name that the registry here knows is used, not ignored.
LEGACY_AGENTS = (
    "td3_discrete_vary_layer_norm", "td3_discrete_vary_layer_norm_2", "td3_discrete_vary_tanh",
    "td3_discrete_vary_tanh_2", "td3_discrete_vary_tanh_3", "td3_discrete_temp_anneal", "reptile", "env_matcher",
    "match_env",
)  # fmt: skip

LEGACY_TASKS = ("HalfCheetah-v2", "LunarLander-v2", "FrozenLake-v0", "CliffWalking-v0", "EmptyRoom")
