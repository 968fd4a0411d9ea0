"""What the adapter uses of Isaac Lab is in its source: an unpacked wheel, ENVOLVE_ISAACLAB_SOURCE=/path/to/folder."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

SOURCE = os.environ.get("ENVOLVE_ISAACLAB_SOURCE", "")
ARTICULATION = "isaaclab/assets/articulation/base_articulation"
RIGID = "isaaclab/assets/rigid_object/base_rigid_object"
STATE = (
    "root_link_pos_w root_link_quat_w root_link_lin_vel_w root_link_ang_vel_w root_link_lin_vel_b root_link_ang_vel_b"
    " projected_gravity_b heading_w default_root_pose default_root_vel body_link_pos_w body_link_lin_vel_w"
)
WRITERS = "write_root_pose_to_sim_index write_root_velocity_to_sim_index body_names"
USED = {  # file, class: names of its attributes and methods
    ("isaaclab/envs/manager_based_env", "ManagerBasedEnv"): (
        "cfg event_manager action_manager observation_manager scene sim obs_buf num_envs physics_dt step_dt device"
        " reset close"
    ),
    ("isaaclab/envs/manager_based_rl_env", "ManagerBasedRLEnv"): (
        "command_manager reward_manager termination_manager episode_length_buf max_episode_length step _reset_idx close"
    ),
    ("isaaclab/managers/reward_manager", "RewardManager"): "active_terms compute get_term_cfg",
    ("isaaclab/managers/termination_manager", "TerminationManager"): (
        "active_terms compute get_term get_term_cfg terminated time_outs"
    ),
    ("isaaclab/managers/event_manager", "EventManager"): (
        "active_terms apply get_term_cfg reset _mode_term_cfgs _interval_term_time_left"
    ),
    ("isaaclab/managers/command_manager", "CommandManager"): "active_terms compute reset get_command get_term",
    ("isaaclab/managers/command_manager", "CommandTerm"): "_resample command",
    ("isaaclab/managers/observation_manager", "ObservationManager"): (
        "compute _group_obs_term_history_buffer _group_obs_term_delay_buffer"
    ),
    ("isaaclab/managers/action_manager", "ActionManager"): "total_action_dim get_term",
    ("isaaclab/managers/action_manager", "ActionTerm"): "action_dim",
    ("isaaclab/envs/mdp/actions/joint_actions", "JointAction"): "_scale _joint_names",
    ("isaaclab/managers/manager_term_cfg", "EventTermCfg"): "mode is_global_time interval_range_s",
    ("isaaclab/managers/manager_term_cfg", "RewardTermCfg"): "weight",
    ("isaaclab/managers/manager_term_cfg", "TerminationTermCfg"): "time_out",
    ("isaaclab/managers/manager_term_cfg", "ManagerTermBaseCfg"): "func params",
    ("isaaclab/utils/buffers/circular_buffer", "CircularBuffer"): "_buffer _num_pushes _stack_dim_internal",
    ("isaaclab/utils/buffers/delay_buffer", "DelayBuffer"): "_buffer _num_pushes _time_lags _write_index",
    ("isaaclab/scene/interactive_scene", "InteractiveScene"): (
        "articulations rigid_objects sensors terrain env_origins get_state"
    ),
    ("isaaclab/scene/interactive_scene_cfg", "InteractiveSceneCfg"): "num_envs env_spacing",
    ("isaaclab/terrains/terrain_importer", "TerrainImporter"): (
        "cfg env_origins terrain_origins terrain_levels terrain_types configure_env_origins"
    ),
    (ARTICULATION, "BaseArticulation"): (
        f"{WRITERS} is_fixed_base joint_names write_joint_position_to_sim_index write_joint_velocity_to_sim_index"
    ),
    (ARTICULATION + "_data", "BaseArticulationData"): (
        f"{STATE} joint_pos joint_vel joint_acc default_joint_pos default_joint_vel applied_torque"
    ),
    (RIGID, "BaseRigidObject"): WRITERS,
    (RIGID + "_data", "BaseRigidObjectData"): STATE,
    ("isaaclab/sensors/contact_sensor/base_contact_sensor_data", "BaseContactSensorData"): (
        "net_normal_forces_w current_air_time last_air_time current_contact_time last_contact_time"
    ),
    ("isaaclab/utils/warp/proxy_array", "ProxyArray"): "torch shape",
}
FUNCTIONS = {
    "isaaclab/app/sim_launcher": "launch_simulation",
    "isaaclab_tasks/utils/parse_cfg": "parse_env_cfg",
}


def tree(name: str) -> ast.Module:
    path = Path(SOURCE) / f"{name}.py"
    assert path.is_file(), f"{path}: not there, ENVOLVE_ISAACLAB_SOURCE is the folder of an unpacked wheel"
    return ast.parse(path.read_text(encoding="utf-8"))


def members(cls: ast.ClassDef) -> set[str]:
    """Methods, fields and what methods assign to ``self``."""
    found = {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(cls):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                    found.add(part.attr)
                elif isinstance(part, ast.Name):
                    found.add(part.id)
    return found


def bases(cls: ast.ClassDef) -> list[str]:
    return [base.id for base in cls.bases if isinstance(base, ast.Name)]


@pytest.mark.skipif(not SOURCE, reason="ENVOLVE_ISAACLAB_SOURCE is not set: the folder of an unpacked wheel")
@pytest.mark.parametrize("file, name", USED)
def test_every_name_is_in_the_source(file: str, name: str) -> None:
    classes = {node.name: node for node in tree(file).body if isinstance(node, ast.ClassDef)}
    found, left = set[str](), [name]
    while left:  # with bases in the same file
        cls = classes.get(left.pop())
        if cls is not None:
            found |= members(cls)
            left += bases(cls)
    assert set(USED[file, name].split()) <= found, sorted(set(USED[file, name].split()) - found)


@pytest.mark.skipif(not SOURCE, reason="ENVOLVE_ISAACLAB_SOURCE is not set: the folder of an unpacked wheel")
@pytest.mark.parametrize("file", FUNCTIONS)
def test_every_function_is_in_the_source(file: str) -> None:
    assert FUNCTIONS[file] in {node.name for node in tree(file).body if isinstance(node, ast.FunctionDef)}


def test_members_are_methods_fields_and_what_methods_assign() -> None:
    cls = ast.parse(
        "class A(B):\n  x: int = 0\n  y = 1\n  def f(self):\n    self.z, other = 1, 2\n    self.w: int = 3"
    ).body[0]
    assert isinstance(cls, ast.ClassDef)
    assert {"x", "y", "f", "z", "w"} <= members(cls) and "v" not in members(cls) and bases(cls) == ["B"]
